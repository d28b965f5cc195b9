"""The software switch and the golden switch side by side: for the same frames, the same answers, counters and jobs."""

from iswitch.config import Config
from iswitch.golden.decide.job import Job
from iswitch.golden.decide.slot import Contributors, Ring
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.switch.software_switch import SoftwareSwitch
from sim.frames.client import SWITCH_IP, SWITCH_MAC

__all__ = ["SoftwarePair"]


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
    ) -> None:
        self.model = TreeSwitch(config, mac=mac, ip=ip, seed=seed, parents=parents)
        self.software = SoftwareSwitch(config, mac=mac, ip=ip, seed=seed, parents=parents)
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
