"""The leaves of a fabric: their parents, and the ranks below them."""

from collections.abc import Sequence
from dataclasses import dataclass

from iswitch.config import MEMBERS_MAX
from sim.emulator.device import Device
from sim.emulator.link import Link

__all__ = ["Leaf", "configure_leaves", "parse_leaf"]


@dataclass(frozen=True)
class Leaf:
    """In `job`, `switch` is a member at `parent`, both counted from 0; `ranks` are those of all workers below it."""

    switch: int
    parent: int
    ranks: frozenset[int]
    job: int = 0


def parse_leaf(given: str) -> Leaf:
    """Parse `1-0:0-3,7` or `1-0:0-3,7:job=2`: in job 2, switch 1 is below switch 0, with workers 0 to 3 and 7."""
    try:
        switches, ranks, *rest = given.split(":")
        switch, parent = map(int, switches.split("-"))
        ((name, job),) = (setting.split("=") for setting in rest or ["job=0"])
        found: list[int] = []
        for part in ranks.split(","):
            first, dash, last = part.partition("-")
            found += range(int(first), min(int(last if dash else first), MEMBERS_MAX) + 1)
        if switch == parent or not found or max(found) >= MEMBERS_MAX or name != "job" or not job.isdecimal():
            raise ValueError
    except ValueError:
        raise ValueError(
            f"a leaf must be switch-parent:ranks or switch-parent:ranks:job=number, as in 1-0:0-3,7, not {given!r}"
        ) from None
    return Leaf(switch, parent, frozenset(found), int(job))


def configure_leaves(boards: Sequence[Device], links: Sequence[Link], leaves: Sequence[Leaf]) -> None:
    """Configure the boards as leaves. Raises ValueError if the leaves of a job are no tree along links, or if two that
    are not one below the other have a rank in common."""
    for leaf in leaves:
        family = {other.switch: other for other in leaves if other.job == leaf.job}
        for switch in (leaf.switch, leaf.parent):
            if not 0 <= switch < len(boards):
                raise ValueError(f"a leaf's switches must be 0 to {len(boards) - 1}, not {switch}")
        if sum(other.switch == leaf.switch and other.job == leaf.job for other in leaves) > 1:
            raise ValueError(
                f"a leaf must have one parent in a job, but switch {leaf.switch} has several in job {leaf.job}"
            )
        ports = [
            end[1]
            for link in links
            for end, far in ((link.one, link.other), (link.other, link.one))
            if (end[0], far[0]) == (leaf.switch, leaf.parent)
        ]
        if len(ports) != 1:
            raise ValueError(
                f"a leaf must have one link to its parent, but switch {leaf.switch} has {len(ports) or 'none'} to "
                f"switch {leaf.parent}"
            )
        for other in family.values():
            if other.parent == leaf.parent and other != leaf and other.ranks & leaf.ranks:
                rank = min(other.ranks & leaf.ranks)
                raise ValueError(
                    f"a rank must be below one leaf, but {rank} is below switches {leaf.switch} and {other.switch}"
                )
        above, steps = leaf, 0
        while above.parent in family:
            above, steps = family[above.parent], steps + 1
            if steps > len(boards):
                raise ValueError(
                    f"a tree must have a root, but the parents of switch {leaf.switch} in job {leaf.job} form a cycle"
                )
            if not leaf.ranks <= above.ranks:
                raise ValueError(
                    f"a leaf's parent must have all ranks of the leaf, but rank {min(leaf.ranks - above.ranks)} of "
                    f"switch {leaf.switch} is not one of switch {above.switch}: name it there, too"
                )
        parent = boards[leaf.parent]
        boards[leaf.switch].parent(
            leaf.job, port=ports[0], mac=parent.mac, ip=parent.ip, ranks=sum(1 << rank for rank in leaf.ranks)
        )
