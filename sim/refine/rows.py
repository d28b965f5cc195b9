"""States of the golden model as rows of the gateware's tables: numbers in the order of the columns."""

from collections.abc import Iterable

from amaranth.lib import data

from hw.interface.rows import slot_row
from iswitch.config import Config
from iswitch.golden.decide.claims import Claims, Grant, waiting_members
from iswitch.golden.decide.slot import Contributors, Ring, Slot
from iswitch.wire import SlotState
from sim.refine.comparison import Numbers

__all__ = ["INCARNATION", "ClaimsColumns", "SlotColumns", "roster"]

INCARNATION = 1
"""Of the ring, to which every slot with content belongs."""

NUMERIC = "numeric"
"""The name that a slot's `format` has in the gateware."""

NO_CONTRIBUTORS = Contributors()


class SlotColumns:
    """The columns of a slot's row. In trees, a slot has `Contributors` beside it."""

    def __init__(self, config: Config) -> None:
        layout = data.Layout.cast(slot_row(config))
        self.names = [name for name, _ in layout]
        self._leftover = tuple(
            int(SlotState.EMPTY) if name == "state" else (1 << field.width) - 1 for name, field in layout
        )
        """What an older incarnation left in an empty slot: every bit is 1, but for its state."""

    def row(self, slot: Slot, contributors: Contributors = NO_CONTRIBUTORS) -> Numbers:
        """Return a slot as a row."""
        if slot.state == SlotState.EMPTY:
            return self._leftover
        fields = slot._asdict() | {NUMERIC: slot.format, "incarnation": INCARNATION}
        fields |= {"ranks": contributors.ranks, "partial": contributors.partial}
        if "ranks" in self.names:
            fields["tainted"] = contributors.tainted
        return tuple(int(fields[name]) for name in self.names)


class ClaimsColumns:
    """The columns of the row of an asynchronous job's claims, in a switch that keeps `config.staleness` + 1 grants."""

    def __init__(self, config: Config) -> None:
        self.kept, self.members = config.staleness + 1, config.members
        self.names = [
            "base",
            "waiting",
            *(f"last_{m}" for m in range(self.members)),
            *(f"grants_{k}_{name}" for k in range(self.kept) for name in ("valid", "base", "members")),
        ]

    def row(self, claims: Claims, beyond: Iterable[Numbers] = ()) -> Numbers:
        """Return claims as a row. `beyond`: what the row holds behind the grants that the job keeps."""
        grants = [(1, *grant) for grant in reversed(claims.grants)]
        # What stands behind the last grant must not count: a grant to all members that would cover the next seq.
        rest = [*beyond, *[self.nothing(claims, len(grants) > claims.staleness)] * self.kept]
        return (
            claims.base,
            waiting_members(claims),
            *(claimant.k for claimant in claims.claimants),
            *(number for grant in [*grants, *rest][: self.kept] for number in grant),
        )

    def nothing(self, claims: Claims, valid: bool) -> Numbers:
        """Return a grant that does not count: it is not valid, or older than the job's staleness allows."""
        return (int(valid), *Grant(claims.base, (1 << self.members) - 1))


def roster(ring: Ring) -> Numbers:
    """Return who the members are, in the order of `ROSTER_FIELDS`."""
    return ring.live, ring.joining, ring.admitted, ring.admitted_seq
