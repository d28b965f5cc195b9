"""The fabric of a plan: switches, cables and parents as `iswitch.plan.output.configuration` describes them, for
programs in virtual time."""

import ipaddress
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from iswitch.config import Config
from iswitch.wire import Outcome
from sim.emulator.cluster import Cluster
from sim.emulator.counters import counters
from sim.emulator.device import Device, open_device
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.link import Link
from sim.emulator.program import Machine, Program

__all__ = ["CABLE", "boards_of", "config_of", "fabric_of", "ordinary_frames", "plug"]

CABLE = Rates(delay_us=1)
"""A cable of 200 m of fibre."""
LEAST = Config()


def config_of(configuration: Mapping[str, Any], **settings: Any) -> Config:
    """Return one `Config` for all switches: the default one if it has enough ports and members, so that it need not be
    compiled anew, changed by `settings`. Raises ValueError, with the reasons, if no fabric of iswitches can run this
    plan."""
    if reasons := configuration["emulator"]["reasons"]:
        raise ValueError(f"no fabric of emulated switches can run this plan: {'; '.join(reasons)}")
    ports = 1 + max(int(port) for switch in configuration["switches"].values() for port in switch["ports"])
    members = max(1 << (configuration["world"] - 1).bit_length(), 2)
    return Config(**{"ports": max(ports, LEAST.ports), "members": max(members, LEAST.members), **settings})


def boards_of(
    configuration: Mapping[str, Any], config: Config, *, seed: int = 1, engine: str = "verilator"
) -> list[Device]:
    """Return the switches, each configured as a leaf where the plan makes it one. The caller closes them.

    They share an operator key that follows from `seed`, so that runs can be repeated."""
    mac = lambda entry: bytes.fromhex(entry["mac"].replace(":", ""))
    ip = lambda entry: ipaddress.IPv4Address(entry["ip"]).packed
    switches = sorted(configuration["switches"].values(), key=lambda switch: switch["number"])
    key = random.Random(f"operator {seed}").randrange(1, 1 << 64)
    boards = [
        open_device(
            config, seed=seed + switch["number"], operator_key=key, engine=engine, mac=mac(switch), ip=ip(switch)
        )
        for switch in switches
    ]
    for board, switch in zip(boards, switches, strict=True):
        for job, role in switch["jobs"].items():
            if parent := role["parent"]:
                board.parent(
                    int(job),
                    port=parent["port"],
                    ranks=sum(1 << rank for rank in role["ranks"]),
                    mac=mac(parent),
                    ip=ip(parent),
                )
    return boards


def fabric_of(
    configuration: Mapping[str, Any], boards: list[Device], *, scale: float = 1.0, rates: Rates = CABLE, seed: int = 1
) -> Fabric:
    """Return the switches and the cables between them that carry traffic. `scale` multiplies the cables' rates."""
    place = lambda entry: (int(entry[0]), int(entry[1]))
    links = [
        Link(place(link["places"][0]), place(link["places"][1]), rate_bps=link["bw_gbps"] * 1e9 * scale, rates=rates)
        for link in configuration["links"]
    ]
    return Fabric(boards, links, seed=seed)


def plug(
    cluster: Cluster,
    configuration: Mapping[str, Any],
    work: Callable[[Program, int, int], Any],
    nics_gbps: Mapping[str, float],
    *,
    scale: float = 1.0,
    rates: Rates = CABLE,
) -> list[list[Program]]:
    """Add the programs of each worker at its port, and return them by rank and job: one program for each tree, since a
    driver is in one job. A worker's programs share its cable. `work` is called with the program, the rank and the job.
    Hosts take no time, so only the network is measured. `nics_gbps` are the rates of the workers' cables."""
    programs = []
    for name, worker in sorted(configuration["workers"].items(), key=lambda item: item[1]["rank"]):
        machine = Machine(burst_us=0, datagram_us=0, rate_bps=nics_gbps[name] * 1e9 * scale, rates=rates)
        programs.append(
            [
                cluster.add(
                    (role["plugged"]["number"], role["plugged"]["port"]),
                    partial(_work_of, work, worker["rank"], int(job)),
                    name=f"{name}, job {job}",
                    machine=machine,
                )
                for job, role in worker["jobs"].items()
            ]
        )
    return programs


def _work_of(work: Callable[[Program, int, int], Any], rank: int, job: int, program: Program) -> Any:
    return work(program, rank, job)


def ordinary_frames(boards: list[Device]) -> int:
    """Return how many ordinary frames the switches have received. Only these are flooded, so if there is none, a cycle
    of cables does no harm."""
    return sum(counters(board).get(Outcome.ORDINARY.name, 0) for board in boards)
