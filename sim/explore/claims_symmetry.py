"""Workers of an asynchronous job are interchangeable: of states that differ only in their numbering one is explored."""

from sim.explore.claims_switch import ClaimsCore
from sim.explore.messages import UNKNOWN

__all__ = ["renumber"]


def renumber(core: ClaimsCore, order: tuple[int, ...]) -> ClaimsCore:
    """Return the switch as if worker `order[k]` had been worker k."""
    n = len(order)

    def mask(members: int) -> int:
        return sum((members >> m & 1) << k for k, m in enumerate(order))

    def row(values: tuple) -> tuple:
        return tuple(values[m] for m in order)

    def content(accumulator: int) -> int:
        segment = max(0, accumulator.bit_length() - 1) // n
        return mask(accumulator >> segment * n) << segment * n

    ring, claims = core.ring, core.claims
    slots = tuple(
        slot._replace(arrived=mask(slot.arrived), members=mask(slot.members), expected=mask(slot.expected))
        for slot in ring.slots
    )
    grants = tuple(grant._replace(members=mask(grant.members)) for grant in claims.grants)
    return core._replace(
        ring=ring._replace(
            slots=slots, acknowledged=row(ring.acknowledged), live=mask(ring.live), joining=mask(ring.joining)
        ),
        claims=claims._replace(grants=grants, claimants=row(claims.claimants)),
        accumulators=tuple(map(content, core.accumulators)),
        results=tuple(members if members == UNKNOWN else mask(members) for members in core.results),
        granted=tuple(map(row, core.granted)),
        versions=row(core.versions),
        refused=row(core.refused),
    )
