"""Whether results reach all members, however these are distributed over the ports of the compiled switch.

A window of results for several members behind one port is more than the port's queue holds. Each line has a fifth of
the bus's rate, as 10 Gb/s at a default switch.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.wire import PortCounter, Type
from sim.bench.clients import form_job
from sim.emulator.counters import counters
from sim.emulator.engine import Board
from sim.frames.client import Client, parse

__all__ = ["STALLED", "Delivery", "deliver", "stall_all", "trains", "wiring"]

STALLED = 0.8
"""The share of stalled cycles with which a line has a fifth of the bus's rate."""


class Delivery(NamedTuple):
    """What became of the copies of results: `lost` ones, `repeated` ones, those with a `wrong` sum, and the results
    that `waited` for room in the queue of port 0."""

    lost: int
    repeated: int
    wrong: int
    waited: int


def wiring(together: int) -> list[int]:
    """Return the ports of a job's members: so many behind port 0, and another one behind port 1 unless they are 8."""
    return [0] * together + [1] * (together < 8)


def trains(config: Config, world: int, length: int) -> list[tuple[int, int]]:
    """Return pairs (member, segment) of a window, in the order in which the members send trains of so many segments."""
    return [
        (member, first + k)
        for first in range(0, config.window, length)
        for member in range(world)
        for k in range(length)
    ]


def stall_all(board: Board, chance: float) -> None:
    """Stall each port in both directions in this share of cycles."""
    for port in range(board.config.ports):
        for direction in ("rx", "tx"):
            board.stall(port, direction, chance, seed=2 * port + 1)


def deliver(config: Config, ports: Sequence[int], order: Iterable[tuple[int, int]]) -> Delivery:
    """Let a job's members, one behind each of `ports`, send a window of full segments in `order`, of pairs (member,
    segment), once and without retransmissions.

    Raises
    ------
    RuntimeError
        If the switch has sent a frame that is no result, or has dropped or aged out a frame.
    """
    with Board(config, seed=5) as board:
        members = [Client.numbered(k, port=port) for k, port in enumerate(ports)]
        form_job(board, members)
        stall_all(board, STALLED)
        for index, k in order:
            member, numbers = members[index], np.full(config.elements, index + 1 + k, np.float32)
            board.send(member.port, member.contribution(member.first_seq + k, numbers, behind=k))
        board.run(10_000_000, now_us=3)
        copies, wrong = Counter[tuple[bytes, int]](), 0
        for port in range(config.ports):
            for frame in board.receive(port):
                result = parse(frame.data)
                if result.type != Type.RESULT:
                    raise RuntimeError(f"port {port} has sent a frame of type {result.type.name}")
                k = int(result.header["seq"]) - members[0].first_seq
                wrong += bool((result.numbers.view("<f4") != sum(range(1, len(ports) + 1)) + k * len(ports)).any())
                copies[frame.data[:6], k] += 1
        stall_all(board, 0.0)
        found = counters(board, now_us=4)
    lossy = (PortCounter.TX_DROP_GRANT, PortCounter.TX_DROP_REPLY, PortCounter.TX_EXPIRED_RESULT)
    if dropped := {name: count for name, count in found.items() if any(counter.name in name for counter in lossy)}:
        raise RuntimeError(f"dropped: {dropped}")
    wanted = Counter({(member.mac, k): 1 for member in members for k in range(config.window)})
    return Delivery(
        (wanted - copies).total(),
        (copies - wanted).total(),
        wrong,
        found.get(f"port 0 {PortCounter.TX_WAIT_RESULT.name}", 0),
    )
