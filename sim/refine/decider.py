"""The rules of ring and claims as the core joins them, as one component without memories: a frame and its rows go in,
and what the frame makes of the rows comes out.

Nothing is decided here. `Ring`, `Claims` and `admit_joining` are the core's own. What is added is what
`hw/decide/core.py` does with a decision: a row that is not written stays, and a field without a meaning reads as 0.
"""

from types import ModuleType
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, Signature

import hw.decide.claims
import hw.decide.ring
from hw.decide.rules.completion import admit_joining
from hw.interface.rows import ROSTER_FIELDS, SEQ_BITS, claims_row, job_row, slot_row
from hw.stream.reduction import lowest_set
from hw.stream.stages import delayed
from iswitch.config import Config
from iswitch.wire import Operation, Outcome

__all__ = ["CYCLES", "Decider"]

CYCLES = 3
"""For so many cycles a frame's inputs stay. Then its outputs are there, while the inputs may be the next frame's."""

FROM_CLAIMS = ("granted",)
"""Inputs of the ring that the claims drive."""


class Decider(Component):
    """Decides one frame: `decided` about a contribution, a receipt, an uplink or a result of the parent, `claimed`
    about a claim.

    `decided`: the slot's next row, what the members acknowledged and who they are after the frame, the operation
    (`works`, `operation`, `first`, `emit`, `receivers`), `told` (the collective that the sender learns of), `victim`
    (the member that is evicted, if `evicts`), and in trees the receipt for the parent. `claimed`: the next row of the
    claims, the grant, the members that the claimant waits for, and `covered` and `granted` for any frame.

    Parameters
    ----------
    config : Config
    ring, claims : module
        Modules of `Ring` and `Claims`, or mutants of these.
    """

    def __init__(self, config: Config, ring: ModuleType = hw.decide.ring, claims: ModuleType = hw.decide.claims):
        self.config, self.ring, self.claims = config, ring.Ring(config), claims.Claims(config)
        self._shared = {
            name: member
            for part in (self.ring, self.claims)
            for name, member in part.signature.members.items()
            if member.flow is In and name not in FROM_CLAIMS
        }
        members, masks = range(config.members), config.members
        decided: dict[str, Any] = {
            "outcome": Outcome,
            "slot": slot_row(config),
            "acknowledged": data.ArrayLayout(SEQ_BITS, config.members),
            "roster": data.StructLayout({name: job_row(config).members[name] for name in ROSTER_FIELDS}),
            "accepts": 1,
            "advances": 1,
            "works": 1,
            "operation": Operation,
            "first": 1,
            "emit": 1,
            "receivers": masks,
            "completes": 1,
            "tells": 1,
            "told": 32,
            "evicts": 1,
            "victim": members,
        }
        if config.uplinks:
            decided |= {"up": 1, "reports": 1, "want": 1, "report_seq": SEQ_BITS, "behind": 16}
        claimed = {
            "outcome": Outcome,
            "row": claims_row(config),
            "grants": 1,
            "base": SEQ_BITS,
            "members": masks,
            "receivers": masks,
            "waits": masks,
            "age": 4,
            "behind": masks,
            "covered": 1,
            "granted": masks,
        }
        outputs = {"decided": Out(data.StructLayout(decided)), "claimed": Out(data.StructLayout(claimed))}
        super().__init__(Signature(self._shared | outputs))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.ring, m.submodules.claims = ring, claims = self.ring, self.claims
        for part in (ring, claims):
            for name, member in part.signature.members.items():
                if member.flow is In and name in self._shared:
                    m.d.comb += Value.cast(getattr(part, name)).eq(Value.cast(getattr(self, name)))
        m.d.comb += [ring.granted.eq(claims.granted), ring.request.covered.eq(claims.covered)]
        self._show_claim(m)
        self._show_decision(m)
        return m

    def _show_claim(self, m: Module) -> None:
        """Drive `claimed`. The claims have decided a cycle before the ring."""
        claims, shown, decision = self.claims, self.claimed, self.claims.decision
        answers = decision.grants
        m.d.sync += [
            shown.outcome.eq(decision.outcome),
            Value.cast(shown.row).eq(Mux(decision.write, Value.cast(claims.row_next), Value.cast(claims.row))),
            shown.grants.eq(answers),
            shown.base.eq(Mux(answers, decision.base, 0)),
            shown.members.eq(Mux(answers, decision.members, 0)),
            shown.receivers.eq(Mux(answers, decision.receivers, 0)),
            shown.waits.eq(decision.waits),
            shown.age.eq(Mux(decision.outcome == Outcome.CONTROL, claims.age, 0)),
            shown.behind.eq(claims.behind),
            shown.covered.eq(claims.covered),
            shown.granted.eq(Mux(claims.covered, claims.granted, 0)),
        ]

    def _show_decision(self, m: Module) -> None:
        """Drive `decided`. The rows and the frame are those of the last cycle."""
        ring, shown, decision = self.ring, self.decided, self.ring.decision
        before: dict[str, Any] = {
            name: delayed(m, f"{name}_of_frame", getattr(self, name))
            for name in ("slot", "job", "acknowledged", "member", "request")
        }
        tables = _Roster(before["job"])
        admitted = admit_joining(m, decision.completes, decision.slot_next, 1, tables.job_row, tables)
        resends = decision.operation == Operation.RESEND
        again = resends | (decision.operation == Operation.SEND_UP)
        late = Value.cast(ring.late)
        m.d.sync += [shown.accepts.eq(ring.accepts), shown.advances.eq(ring.accepts & ring.advances)]
        m.d.comb += [
            shown.outcome.eq(decision.outcome),
            Value.cast(shown.slot).eq(
                Mux(decision.slot_write, Value.cast(decision.slot_next), Value.cast(before["slot"]))
            ),
            shown.works.eq(decision.works),
            shown.operation.eq(Mux(decision.works, decision.operation, 0)),
            shown.first.eq(decision.works & decision.first & ~again),
            shown.emit.eq(decision.works & ~resends & ((decision.operation != Operation.CONTRIBUTE) | decision.emit)),
            shown.receivers.eq(
                Mux(
                    decision.works & ~decision.up, Mux(resends, 1 << before["member"], before["job"].live | admitted), 0
                )
            ),
            shown.completes.eq(decision.completes),
            shown.tells.eq(decision.conflicts),
            shown.told.eq(
                Mux(
                    decision.conflicts,
                    Mux(decision.outcome == Outcome.COLLECTIVE, before["slot"].collective, before["slot"].rival),
                    0,
                )
            ),
            shown.evicts.eq(ring.evicts),
            shown.victim.eq(Mux(ring.evicts, lowest_set(late), 0)),
        ]
        for name in ROSTER_FIELDS:
            m.d.comb += shown.roster[name].eq(Mux(tables.roster_write, tables.roster_next[name], before["job"][name]))
        for k in range(self.config.members):
            own = Mux(decision.advance & (before["member"] == k), ring.low, before["acknowledged"][k])
            m.d.comb += shown.acknowledged[k].eq(Mux(tables.admitted_seq_write[k], tables.admitted_seq_next, own))
        if self.config.uplinks:
            reports = decision.reports
            m.d.comb += [
                shown.up.eq(decision.up),
                shown.reports.eq(reports),
                shown.want.eq(reports & decision.report.want),
                shown.report_seq.eq(Mux(reports, decision.report.seq, 0)),
                shown.behind.eq(Mux(reports, decision.report.behind, 0)),
            ]


class _Roster:
    """What `admit_joining` uses of the tables: the job's row, and what it writes of it."""

    def __init__(self, job: Any) -> None:
        shape = data.StructLayout({name: job.shape().members[name] for name in ROSTER_FIELDS})
        self.job_row, self.roster_next, self.roster_write = job, Signal(shape), Signal()
        self.admitted_seq_write, self.admitted_seq_next = Signal(len(job.live)), Signal(SEQ_BITS)
