"""The software switch and the golden switch side by side: for the same frames, the same answers, counters and jobs.

`python -m sim.bench.software_pair --frames 1000000` gives both a million random frames.
"""

import time
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from iswitch.config import Config
from iswitch.golden.decide.job import Job
from iswitch.golden.decide.slot import Contributors, Ring
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.switch.software_switch import SoftwareSwitch
from iswitch.wire import SILENCE_TICK_US, Format, Mode, Outcome
from sim.bench.traffic import Traffic, adverse_elements
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client

__all__ = ["AdverseTraffic", "SoftwarePair", "run_poisoned_sums", "run_random_frames"]

SETTINGS: tuple[dict[str, int], ...] = (
    {},
    {"mode": Mode.PROPAGATE, "format": Format.FP32},
    {"threshold": 2, "deadline_us": 60, "evict_us": 20 * SILENCE_TICK_US},
    {"segments": 3, "staleness": 1, "threshold": 2, "evict_us": 3 * SILENCE_TICK_US},
    {"segments": 1, "staleness": 7, "threshold": 1},
    {"format": Format.BF16, "mode": Mode.PROPAGATE},
    {"format": Format.FP16, "fraction": 30, "threshold": 2, "deadline_us": 60, "evict_us": 20 * SILENCE_TICK_US},
    {"format": Format.BF16, "segments": 3, "staleness": 1, "threshold": 2, "evict_us": 3 * SILENCE_TICK_US},
)
"""Settings of jobs."""


class SoftwarePair:
    """Both switches. Every difference raises AssertionError. Parameters as of `TreeSwitch`.

    `by_data_path`: how many messages the data path has handled alone.
    """

    def __init__(
        self,
        config: Config,
        *,
        mac: bytes = SWITCH_MAC,
        ip: bytes = SWITCH_IP,
        seed: int = 1,
        parents: dict[int, Parent] | None = None,
        operator_key: int = 0,
    ) -> None:
        settings: dict[str, Any] = {"mac": mac, "ip": ip, "seed": seed, "operator_key": operator_key}
        self.model = TreeSwitch(config, parents=parents, **settings)
        self.software = SoftwareSwitch(config, parents=parents, **settings)
        self.now_us = self.frames = 0

    def exchange(self, port: int, frame: bytes, error: bool = False) -> list[bytes]:
        """Give a frame to both switches, and return what they send."""
        wanted, got = (switch.receive(port, frame, self.now_us, error) for switch in (self.model, self.software))
        self.frames += 1
        assert got == wanted, f"frame {self.frames}: {got} instead of {wanted}"
        return [answer for _, answer in wanted]

    def wait(self, us: int) -> None:
        """Let time pass, on a clock that wraps as the switch's does."""
        self.now_us = (self.now_us + us) % 2**32

    def compare(self) -> None:
        """Compare counters, jobs and sums."""
        assert self.software.counters() == self.model.counters()
        for job, wanted in zip(self.software.jobs, self.model.jobs, strict=True):
            assert comparable(job) == comparable(wanted)
        for place, sums in self.model.sums.stored.items():
            if sums.accumulator.size == self.software.sums.stored[place].accumulator.size:
                assert all(map(lambda got, wanted: (got == wanted).all(), self.software.sums.stored[place], sums))

    @property
    def by_data_path(self) -> int:
        return self.software.by_data_path


def comparable(job: Job) -> Job:
    """Return a job whose ring names contributors in any case."""
    ring: Ring = job.ring
    return job._replace(ring=ring._replace(contributors=ring.contributors or (Contributors(),) * len(ring.slots)))


class AdverseTraffic(Traffic):
    """Random traffic in which a third of the contributions differ from the slot's in any field, and frames are lost,
    come twice, and overtake each other. Parameters as of `Traffic`."""

    def __init__(self, config: Config, *, seed: int, workers: int, jobs: int, pair: SoftwarePair) -> None:
        super().__init__(config, seed=seed, workers=workers, jobs=jobs, exchange=self.pass_on)
        self.pair = pair
        self.waiting: list[tuple[int, bytes, bool]] = []

    def pass_on(self, port: int, frame: bytes, error: bool) -> list[bytes]:
        """Carry a frame over a bad network."""
        rng = self.rng
        self.pair.wait(int(rng.choice([1, 37, 9000], p=[0.5, 0.47, 0.03])))
        chance = rng.random()
        if chance < 0.02:
            return []
        if chance < 0.06:
            self.waiting.append((port, frame, error))
            return []
        answers = self.pair.exchange(port, frame, error)
        if chance < 0.08:
            answers += self.pair.exchange(port, frame, error)
        while self.waiting and rng.random() < 0.2:
            answers += self.pair.exchange(*self.waiting.pop(int(rng.integers(len(self.waiting)))))
        return answers

    def contribute(self, client: Client) -> None:
        rng = self.rng
        if rng.random() > 0.3:
            super().contribute(client)
            return
        low = self.low(client)
        seq = low + int(rng.integers(-2, 2 * self.config.window + 2))
        length = 1 + seq * 37 % self.config.elements if rng.random() < 0.9 else int(rng.integers(0, 9))
        format = Format.INT32 if seq % 7 == 0 else client.format
        frame = client.contribution(
            seq,
            adverse_elements(rng, format, length, 0.01),
            behind=max(0, seq - low) if rng.random() < 0.8 else int(rng.integers(0, 3 * self.config.window)),
            flags=self.kind(seq) if rng.random() < 0.8 else int(rng.integers(0, 16)),
            format=format,
            collective=int(rng.random() < 0.1),
            digest=int(rng.random() < 0.1),
        )
        self.send(client, frame)


class Compared(NamedTuple):
    """What both switches were given. `outcomes`: of all frames, by name."""

    frames: int
    by_data_path: int
    outcomes: dict[str, int]


def run_random_frames(frames: int, *, seed: int) -> Compared:
    """Give both switches random frames, from several configurations one after another.

    Raises
    ------
    AssertionError
        If they differ.
    """
    rng = np.random.default_rng(seed)
    handled, by_data_path, outcomes = 0, 0, np.zeros(max(Outcome) + 1, int)
    while handled < frames:
        members = int(rng.choice([4, 8, 32]))
        config = Config(
            ports=int(rng.integers(1, 5)),
            members=members,
            jobs=2,
            window=int(rng.choice([1, 4, 16])),
            elements=int(rng.choice([16, 64, 352])),
            bus_bits=int(rng.choice([64, 256])),
            uplinks=bool(rng.random() < 0.5),
            half_width=True,
        )
        pair = SoftwarePair(config, seed=int(rng.integers(2**63)))
        traffic = AdverseTraffic(config, seed=int(rng.integers(2**63)), workers=3, jobs=2, pair=pair)
        for job in range(2):
            traffic.form(job, **SETTINGS[rng.integers(len(SETTINGS))])
        while pair.frames < min(5000, frames - handled):
            traffic.steps(500)
            pair.wait(int(rng.choice([0, 40_000_000, 310_000_000, 3_000_000_000])))
            pair.compare()
        handled, by_data_path = handled + pair.frames, by_data_path + pair.by_data_path
        outcomes += pair.model.outcomes
    return Compared(handled, by_data_path, {kind.name: int(outcomes[kind]) for kind in Outcome})


def run_poisoned_sums(workers: int) -> None:
    """Use all slots several times, with a NaN in some, all or none of the contributions, and ask for each result again.

    Segments are longer than a block of the data path, and the NaN is behind the first block.

    Raises
    ------
    AssertionError
        If the two switches differ.
    """
    config = Config(ports=2, bus_bits=64, members=4, jobs=2, window=1, elements=1104)
    for poisoned in ((0,), (1,), (0, 1), ()):
        pair = SoftwarePair(config)
        traffic = Traffic(config, seed=1, workers=workers, exchange=pair.exchange)
        traffic.form(0, mode=Mode.PROPAGATE)
        for position in range(4 * config.slots):
            for k, client in enumerate(traffic.clients):
                values = np.resize(np.array([1.5, -0.0, 1e-30, -(2.0**-40)], np.float32), 1000)
                values[700] = np.nan if k in poisoned and position // config.slots != 1 else -3.25
                traffic.send(client, client.contribution(client.first_seq + position, values.view(np.uint32)))
                pair.compare()
            for client in traffic.clients:
                traffic.send(client, client.receipt(client.first_seq + position, want=True))
            pair.compare()
        assert pair.model.outcomes[Outcome.ADDED] == 4 * workers * config.slots


def main(
    frames: Annotated[int, typer.Option(metavar="N", help="Number of frames.")] = 1_000_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.")] = 1,
) -> None:
    """Give the software switch and the golden switch random frames, and compare all that they do."""
    begun = time.monotonic()
    found = run_random_frames(frames, seed=seed)
    print(f"{found.frames:,} frames in {time.monotonic() - begun:.0f} s: the same answers, counters, jobs and sums")
    print(f"the data path has handled {found.by_data_path:,} of them alone")
    print(", ".join(f"{name} {count:,}" for name, count in found.outcomes.items() if count))


if __name__ == "__main__":
    typer.run(main)
