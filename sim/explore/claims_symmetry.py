"""Workers are alike: of the states of `claims.py` that differ in their numbers alone one is looked at."""

from sim.explore.claims_switch import Core
from sim.explore.ring_switch import UNKNOWN

__all__ = ["renumber"]


def renumber(core: Core, order: tuple[int, ...]) -> Core:
    """The same core if worker `order[k]` had been worker k."""
    n = len(order)

    def moved(mask: int) -> int:
        return sum((mask >> m & 1) << k for k, m in enumerate(order))

    def moved_row(row: tuple) -> tuple:
        return tuple(row[m] for m in order)

    def moved_sum(content: int) -> int:
        segment = max(0, content.bit_length() - 1) // n
        return moved(content >> segment * n) << segment * n

    ring, claims = core.ring, core.claims
    slots = tuple(
        slot._replace(arrived=moved(slot.arrived), members=moved(slot.members), expected=moved(slot.expected))
        for slot in ring.slots
    )
    grants = tuple(grant._replace(members=moved(grant.members)) for grant in claims.grants)
    return core._replace(
        ring=ring._replace(
            slots=slots, acknowledged=moved_row(ring.acknowledged), live=moved(ring.live), joining=moved(ring.joining)
        ),
        claims=claims._replace(grants=grants, claimants=moved_row(claims.claimants)),
        memory=tuple(map(moved_sum, core.memory)),
        truth=tuple(members if members == UNKNOWN else moved(members) for members in core.truth),
        granted=tuple(map(moved_row, core.granted)),
        versions=moved_row(core.versions),
        refused=moved_row(core.refused),
    )
