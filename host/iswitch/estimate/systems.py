"""All systems by name, and where the switch is ahead of them."""

from collections.abc import Callable
from typing import NamedTuple

from iswitch.config import MEMBERS_MAX
from iswitch.estimate.collectives import ring, tree
from iswitch.estimate.server import asynchronous_server, parameter_server, sharded_server, streaming_server
from iswitch.estimate.setting import Phases, Setting
from iswitch.estimate.switch import asynchronous_switch, switch

__all__ = ["ISWITCH", "MOST_BYTES", "SYSTEMS", "Estimate", "estimate", "reservation", "verdict"]

ISWITCH = "iswitch"
SYSTEMS: dict[str, Callable[[Setting], Phases]] = {
    "parameter server": parameter_server,
    "streaming server": streaming_server,
    "sharded server": sharded_server,
    "ring": ring,
    "tree of workers": tree,
    ISWITCH: switch,
}
MOST_BYTES = 2**31
"""The most bytes of all workers' vectors together; the simulation of more would take minutes."""


class Estimate(NamedTuple):
    """What is estimated for a setting.

    Parameters
    ----------
    phases : dict
        An iteration of each system.
    asynchronous_s : dict
        Seconds in which as many gradients as workers are applied, by the asynchronous systems.
    """

    phases: dict[str, Phases]
    asynchronous_s: dict[str, float]

    def ratio(self, system: str) -> float:
        """Return how many times as fast as a system the switch is."""
        return self.phases[system].total_s / self.phases[ISWITCH].total_s


def estimate(setting: Setting) -> Estimate:
    """Estimate all systems.

    Raises
    ------
    ValueError
        If the vectors are so large that the simulation would take minutes.
    """
    total = setting.size_bytes * setting.workers
    if total > MOST_BYTES:
        raise ValueError(
            f"the vectors of all workers must have {MOST_BYTES:,} bytes together at most, not {total:,}; with vectors "
            "of more than some megabytes, times are proportional to the size, so estimate a smaller one"
        )
    return Estimate(
        {name: run(setting) for name, run in SYSTEMS.items()},
        {
            "asynchronous server": asynchronous_server(setting),
            "asynchronous server, computing meanwhile": asynchronous_server(setting, overlapped=True),
            "iswitch, asynchronous": asynchronous_switch(setting),
        },
    )


def reservation(setting: Setting) -> str | None:
    """Return a sentence that says why no switch can do what is estimated for it; None if one can."""
    if setting.workers > MEMBERS_MAX:
        return (
            f"No switch does this: a job has {MEMBERS_MAX} workers at most. "
            f"The times of the switch are those of one whose frames name {setting.workers} workers."
        )
    return None


def verdict(found: Estimate) -> str:
    """Return a sentence that names the fastest system."""
    others = [name for name in found.phases if name != ISWITCH]
    best = min(others, key=lambda name: found.phases[name].total_s)
    ratio, ours = found.ratio(best), found.phases[ISWITCH]
    slower = ", ".join(f"{found.ratio(name):.2f} of the {name}" for name in others if name != best)
    head = (
        f"The switch is {ratio:.2f} times as fast as the {best}, the best of the others"
        if ratio >= 1
        else f"The {best} is {1 / ratio:.2f} times as fast as the switch"
    )
    return f"{head} (times the speed: {slower}). Communication takes {ours.share:.0%} of an iteration with the switch."
