"""All refinements, and the table that the documentation shows."""

import hw.decide.claims
import hw.decide.lowest_missing
import hw.decide.ring
from sim.refine.case import Content, RingCase
from sim.refine.claims import ClaimsCase, ClaimsRefinement
from sim.refine.refinement import Counts, Mutant, Refinement
from sim.refine.ring import RingRefinement
from sim.refine.tree import TreeCase, TreeRefinement

__all__ = ["REFINEMENTS", "table"]

PLAIN, TAINTED = Content(), Content(tainted=True)
RING, CLAIMS, LOWEST = hw.decide.ring, hw.decide.claims, hw.decide.lowest_missing
HALF = 2**31
INCLUDED, REJECTED = (True, False, False), (False, True, True)
"""Uplinks: with the member's rank in the sum, and with its elements rejected and the sum partial."""
RESULT, PARTIAL_RESULT = (1, 8, 3, 0, False, 5), (1, 8, 1, 2, True, 6)
"""Results of the parent: format, length, ranks, tainted, partial, identity."""


def ring(name: str, extent: str, counts: tuple[int, int, int], case: RingCase, *mutants: tuple[str, str]) -> Refinement:
    """Return the refinement of a ring outside any tree."""
    return Refinement(
        name=name,
        extent=extent,
        case=case,
        explorer=RingRefinement,
        counts=Counts(*counts),
        mutants=tuple(Mutant(RING, *pair) for pair in mutants),
    )


def claims(name: str, extent: str, counts: tuple[int, int, int], case: ClaimsCase, *mutants: Mutant) -> Refinement:
    """Return the refinement of an asynchronous job."""
    return Refinement(
        name=name, extent=extent, case=case, explorer=ClaimsRefinement, counts=Counts(*counts), mutants=mutants
    )


def tree(name: str, extent: str, counts: tuple[int, int, int], case: TreeCase, *mutants: Mutant) -> Refinement:
    """Return the refinement of a switch in a tree."""
    return Refinement(
        name=name, extent=extent, case=case, explorer=TreeRefinement, counts=Counts(*counts), mutants=mutants
    )


REFINEMENTS = [
    ring(
        "two members",
        "four seqs over 2^32, three of `behind`",
        (295, 21240, 4824),
        RingCase(seqs=(0, 1, 2, 3), behinds=(0, 1, 2)),
        ("known_before <= 0, known <= 0)", "known_before <= 0, known < 0)"),
        ("(complete & (lacks & ~bit).any())", "complete"),
    ),
    ring(
        "seqs far away",
        "seqs of four laps over 2^32, and one 2^31 ahead",
        (476, 51408, 12852),
        RingCase(seqs=(-1, 0, 1, 2, 4, HALF), behinds=(0, 1, 3)),
        ("laps_after_empty << index_bits", "laps_after_empty"),
        ("(~receipt & beyond_ring)", "0"),
    ),
    ring(
        "H, departures and FBCAST",
        "H is 1 or 2, members leave, slots are forced",
        (6454, 188736, 23136),
        RingCase(seqs=(0, 1, 2, 3), behinds=(0, 2), thresholds=(2, 1), leaves=True, forces=True),
        ("count.eq(Mux(opens, 0, tally)", "count.eq(tally"),
    ),
    ring(
        "quarantine",
        "tainted contributions, which are not added; H is 1 or 2",
        (1694, 81312, 9312),
        RingCase(seqs=(0, 1, 2), behinds=(0, 2), contents=(PLAIN, TAINTED), thresholds=(2, 1)),
        ("tally.eq(popcount(slot.members))", "tally.eq(popcount(slot.arrived))"),
        ("Mux(opens, 0, slot.tainted)", "slot.tainted"),
    ),
    ring(
        "no quarantine",
        "tainted contributions, which are added; H is 1 or 2",
        (2418, 116064, 11104),
        RingCase(seqs=(0, 1, 2), behinds=(0, 2), contents=(PLAIN, TAINTED), thresholds=(2, 1), quarantine=False),
        ("request.tainted & ~job.mode", "request.tainted"),
    ),
    ring(
        "positions",
        "contributions of two collectives, and of two digests",
        (4425, 265500, 13340),
        RingCase(seqs=(0, 1, 2), behinds=(0, 2), contents=(PLAIN, Content(collective=2), Content(digest=1))),
        ("decision.conflicts.eq(collecting & has_rival)", "decision.conflicts.eq(collecting)"),
    ),
    ring(
        "formats and lengths",
        "two formats, two lengths, requires_all; H is 1 or 2",
        (5358, 192888, 12360),
        RingCase(
            seqs=(0, 1, 2),
            behinds=(0,),
            contents=(PLAIN, Content(format=2), Content(length=12), Content(requires_all=True)),
            thresholds=(2, 1),
        ),
        ("~opens & (request.length", "(request.length"),
    ),
    ring(
        "boundaries",
        "members leave and join, and are admitted at boundaries",
        (5563, 82536, 16440),
        RingCase(seqs=(0, 1, 2), behinds=(0,), contents=(PLAIN, Content(boundary=True)), leaves=True, joins=True),
        ("job.live & ~Mux(early, job.admitted, 0)", "job.live"),
        ("early.eq(before_start < 0)", "early.eq(before_start <= 0)"),
    ),
    ring(
        "deadline",
        "a deadline of 2 us, the clock over 2^32, requires_all",
        (1150, 55200, 3504),
        RingCase(
            seqs=(0, 1),
            behinds=(0,),
            contents=(PLAIN, Content(requires_all=True)),
            times=(2**32 - 1, 0, 1),
            deadline_us=2,
        ),
        ("(age >= job.deadline_us)", "(age > job.deadline_us)"),
    ),
    ring(
        "silence",
        "members fall silent and are evicted, and join",
        (2764, 94656, 27456),
        RingCase(seqs=(0, 1, 2, 3), behinds=(0, 2), silences=True, joins=True),
        ("silence > allowed", "silence >= allowed"),
        ("silent_others = self.silent & ~bit", "silent_others = self.silent"),
    ),
    ring(
        "epochs",
        "RESET, members leave, H is 1 or 2, seqs over 2^31",
        (6130, 180960, 23136),
        RingCase(seqs=(0, 1, 2, 3), behinds=(0, 2), first_seq=HALF - 2, thresholds=(2, 1), leaves=True, resets=True),
        ("empty.eq(slot.state == SlotState.EMPTY)", "empty.eq(0)"),
    ),
    ring(
        "three members",
        "two laps of one slot, H is 2 or 3",
        (644, 34776, 34776),
        RingCase(members=3, seqs=(0, 2), behinds=(0, 1, 2), thresholds=(3, 2)),
        ("Mux(is_before & before.advances, known_before <= 0, known <= 0)", "(known <= 0)"),
    ),
    ring(
        "window of 2",
        "three laps of the slots at both ends of the ring, W = 2",
        (1503, 135270, 32616),
        RingCase(window=2, seqs=(0, 3, 4, 7, 8), behinds=(0, 2, 3)),
        ("reaches(request.behind, window + 1)", "reaches(request.behind, window)"),
    ),
    claims(
        "claims, S = 0",
        "two updates, H is 1 or 2, claims beside frames",
        (712, 29904, 13164),
        ClaimsCase(seqs=(0, 1), behinds=(0, 1), thresholds=(1, 2)),
        Mutant(CLAIMS, "valid.append(grant.valid & (job.staleness >= k))", "valid.append(grant.valid)"),
        Mutant(CLAIMS, "popcount(waiting) >= job.threshold", "popcount(waiting) > job.threshold"),
        Mutant(RING, "Mux(opens_update, self.granted, ", "Mux(0, self.granted, "),
    ),
    claims(
        "claims, S = 1",
        "three updates, H is 1, weights up to one that does not exist",
        (657, 39420, 18228),
        ClaimsCase(seqs=(0, 1, 2), behinds=(0, 1), thresholds=(1,), staleness=1, updates=3, weights=(0, 1, 2, 3)),
        Mutant(CLAIMS, "old.eq(age > job.staleness)", "old.eq(age > job.staleness + 1)"),
        Mutant(CLAIMS, "next_row.grants[k].eq(kept[k - 1])", "next_row.grants[k].eq(kept[k])"),
    ),
    claims(
        "numbers of claims",
        "numbers and weights up to 2^31 apart",
        (20, 1040, 672),
        ClaimsCase(
            seqs=(0, 1),
            behinds=(0,),
            thresholds=(1,),
            staleness=1,
            updates=1,
            numbers=(0, 1, HALF, HALF + 1, -1),
            weights=(-1, 0, 1, HALF),
        ),
        Mutant(CLAIMS, "beyond_acknowledged > 0", "beyond_acknowledged != 0"),
    ),
    claims(
        "updates of two segments",
        "two updates, M = 2, S = 1",
        (980, 35280, 14304),
        ClaimsCase(
            seqs=(0, 1, 2, 3), behinds=(0,), thresholds=(1,), staleness=1, segments=2, updates=2, numbers=(1, 2)
        ),
        Mutant(CLAIMS, "past_base < job.segments", "past_base <= job.segments"),
    ),
    claims(
        "claims and departures",
        "members leave, join, fall silent and are evicted; S = 1",
        (604, 10848, 4164),
        ClaimsCase(
            seqs=(0, 1), behinds=(0,), staleness=1, updates=1, numbers=(0, 1), leaves=True, joins=True, silences=True
        ),
        Mutant(CLAIMS, "decision.waits.eq(self.behind)", "decision.waits.eq(0)"),
        Mutant(RING, "with m.Elif(any_granted):", "with m.Elif(0):"),
    ),
    tree(
        "root of a tree",
        "contributions and two kinds of uplinks",
        (1017, 61020, 6140),
        TreeCase(leaf=False, seqs=(0, 1, 2), behinds=(0, 1), uplinks=(INCLUDED, REJECTED)),
        Mutant(RING, "Mux(uplink, request.ranks == 0, request.tainted & ~job.mode)", "request.tainted & ~job.mode"),
    ),
    tree(
        "leaf of a tree",
        "contributions, uplinks and the parent's results",
        (512, 26112, 3774),
        TreeCase(seqs=(0, 1, 2), behinds=(0, 2), uplinks=(INCLUDED,), results=(RESULT,)),
        Mutant(RING, "result_held.eq(collecting | sent_up |", "result_held.eq(collecting |"),
        Mutant(RING, "m.Elif(sent_up)", "m.Elif(0)"),
    ),
    tree(
        "results of the parent",
        "two results, others of another format and length",
        (1736, 52080, 4070),
        TreeCase(
            seqs=(0, 1, 2), behinds=(0,), results=(RESULT, PARTIAL_RESULT, (2, *RESULT[1:]), (1, 12, *RESULT[2:]))
        ),
        Mutant(RING, "Mux(opens | installs, 0, slot.ranks)", "slot.ranks"),
    ),
    tree(
        "notices of the parent",
        "two collectives, notices about others",
        (2603, 85899, 5610),
        TreeCase(
            seqs=(0, 1, 2), behinds=(0,), contents=(PLAIN, Content(collective=2)), results=(RESULT,), collectives=(0, 7)
        ),
        Mutant(RING, "decision.slot_write.eq(holds)", "decision.slot_write.eq(0)"),
    ),
    tree(
        "departures at a leaf",
        "members leave, fall silent and are evicted; H is 1 or 2",
        (1048, 10736, 10736),
        TreeCase(seqs=(0, 2), behinds=(0,), thresholds=(2, 1), leaves=True, silences=True, results=(RESULT,)),
        Mutant(LOWEST, "own.eq(Mux(member_is_live, self.gain[:bits], nearest))", "own.eq(0)"),
    ),
    tree(
        "reports of a leaf",
        "receipts alone, of members that lack results up to 8 W - 1 seqs apart",
        (64, 2048, 2048),
        TreeCase(seqs=tuple(range(8)), behinds=(0,), contents=()),
        Mutant(LOWEST, "exact_log2(self.config.slots) + 3", "exact_log2(self.config.slots) + 1"),
        Mutant(RING, "(distance <= window)", "(distance < window)"),
    ),
]


def table() -> str:
    """Return the refinements as a Markdown table: the job, its frames and events, and what there is to compare."""
    rows = [
        f"| {each.name[0].upper()}{each.name[1:]} | {each.extent} | {each.counts.states:,} | {each.counts.pairs:,} "
        f"| {each.counts.inputs:,} | {len(each.mutants)} |"
        for each in REFINEMENTS
    ]
    total = Counts(*map(sum, zip(*(each.counts for each in REFINEMENTS), strict=True)))
    mutants = sum(len(each.mutants) for each in REFINEMENTS)
    return "\n".join(
        [
            "| job | frames and events | states | pairs | inputs | mutants found |",
            "|---|---|---|---|---|---|",
            *rows,
            f"| All | | {total.states:,} | {total.pairs:,} | {total.inputs:,} | {mutants} |",
        ]
    )
