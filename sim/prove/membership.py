"""Membership: which frames count as a member's, which hosts may command a job, and which are its members."""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value, signed

import hw.decide.checks
import hw.decide.membership.command
import hw.decide.membership.departure
from hw.decide.membership.procedure import FollowUp
from iswitch.config import Config
from iswitch.wire import Action, JobState, Reason
from sim.prove.harness import Harness, after
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

CONFIG = Config()


def comes_from(headers: Any, member: Any) -> Value:
    """Return whether a frame comes from the port and the addresses of a member."""
    frame, address = headers.frame, member.address
    sender = Cat(*(Value.cast(part) for part in (frame.eth_src, frame.ip_src, frame.udp_src)))
    joined = Cat(*(Value.cast(part) for part in (address.mac, address.ip, address.udp)))
    return (headers.arrival.port == member.port) & (sender == joined)


class CheckedFrame:
    """Any frame with any rows of its job and its member, and what the checks say. `accepted`: no check fails."""

    def __init__(self, part: Any):
        self.h = h = Harness(dut := part.Checks(CONFIG))
        h.constant_inputs()
        self.frame, self.headers, self.job, self.member, self.kind = (
            dut.headers.frame,
            dut.headers,
            dut.job,
            dut.member,
            dut.kind,
        )
        self.dut, self.accepted = dut, after(h, 1) & ~dut.fault
        self.exists = (self.frame.job < CONFIG.jobs) & (self.job.state != JobState.NONE)

    def require(self, condition: Any) -> None:
        """Add the property that the condition holds for each frame that is accepted."""
        self.h.require(~self.accepted | condition)


def accepts_frames_of_members(part: Any) -> Harness:
    """The frames that reach the ring or the claims in the name of a member."""
    c = CheckedFrame(part)
    kind, frame, job, member = c.kind, c.frame, c.job, c.member
    collective = kind.contribution | kind.uplink | kind.receipt | kind.claim
    is_member = (frame.member < CONFIG.members) & member.live & (job.live >> frame.member)[0]
    runs = c.exists & (job.state != JobState.FORMING) & (frame.epoch == job.epoch)
    c.require(~collective | (is_member & runs & (frame.token == member.token) & comes_from(c.headers, member)))
    c.require(~collective | (~c.dut.corrupt & ~c.dut.spoofed))
    c.require(~(kind.contribution | kind.uplink) | (job.state != JobState.HALTED))
    scan = c.headers.arrival.scan
    named = Signal(32)
    c.h.m.d.comb += named.eq(scan.ranks | scan.tainted)
    single = (member.ranks & (member.ranks - 1)[: len(member.ranks)]) == 0
    c.require(~kind.uplink | (member.sends_uplinks & job.tree & ((named & ~member.ranks) == 0)))
    c.require(~kind.contribution | single)
    for one in (kind.contribution, kind.uplink, kind.receipt, kind.claim):
        c.h.reach(c.accepted & one)
    return c.h


def accepts_results_of_the_parent(part: Any) -> Harness:
    """The frames that reach the ring in the name of the parent, and those about it that reach membership."""
    c = CheckedFrame(part)
    kind, frame, job, parent = c.kind, c.frame, c.job, c.dut.parent
    address = (Value.cast(frame.eth_src) == parent.mac) & (Value.cast(frame.ip_src) == parent.ip)
    above = kind.parent_result | kind.parent_conflict | kind.parent_reply
    here = kind.is_leaf & c.exists & (c.headers.arrival.port == parent.port) & address & ~c.dut.corrupt
    c.require(~above | here)
    now = (job.state != JobState.FORMING) & (frame.epoch == job.epoch)
    c.require(~kind.parent_result | (now & (frame.token == job.up_job_token)))
    c.require(~kind.parent_conflict | (now & (frame.token == job.up_token)))
    for one in (kind.parent_result, kind.parent_conflict, kind.parent_reply):
        c.h.reach(c.accepted & one)
    return c.h


def commands_come_from_members(part: Any) -> Harness:
    """A command is followed by a change only if its sender may change the job, and once."""
    h = Harness(dut := part.Command(CONFIG))
    h.constant_inputs()
    request, tables = dut.request, dut.tables
    frame, settings, job, row = request.headers.frame, request.headers.body, tables.job_row, tables.member_row
    writes = tables.status_write | tables.entry_write | tables.roster_write
    changes = writes | (dut.follow_up != FollowUp.NONE)
    by_key = (request.action == Action.END) | (request.action == Action.RESUME)
    resets, sets = request.action == Action.RESET, request.action == Action.SET_H
    ahead = Signal(signed(32))
    h.m.d.comb += ahead.eq(frame.seq - row.number)
    exists = request.job_in_range & (job.state != JobState.NONE)
    is_member = (frame.member < CONFIG.members) & row.live & (frame.token == row.token)
    fresh = comes_from(request.headers, row) & (ahead > 0) & (~resets | (frame.epoch == job.epoch))
    has_key = (request.challenge == job.challenge) & ((settings.key == job.key) | request.from_operator)
    h.require(~writes | dut.done)
    h.require(~changes | (dut.done & (dut.reason == Reason.DONE) & exists & Mux(by_key, has_key, is_member & fresh)))
    # What changes, and what follows.
    status = tables.status_next
    next_challenge = (job.challenge + 1)[: len(job.challenge)]
    follows = {
        FollowUp.DEPART: Action.LEAVE,
        FollowUp.FORCE_SLOT: Action.FBCAST,
        FollowUp.EMPTY_RING: Action.RESET,
        FollowUp.ERASE_JOB: Action.END,
    }
    for procedure, action in follows.items():
        h.require((dut.follow_up != procedure) | (request.action == action))
        h.reach(dut.done & (dut.follow_up == procedure))
    h.require(dut.follow_up != FollowUp.SWEEP_SLOTS)
    h.require(~tables.entry_write | (tables.entry_next.number == frame.seq))
    h.require(~(tables.status_write & ~by_key) | tables.entry_write)
    h.require(~(tables.status_write & by_key) | (status.challenge == next_challenge))
    h.require(~tables.status_write | resets | (status.epoch == job.epoch))
    h.require(~tables.status_write | sets | (status.threshold == job.threshold))
    in_range = (status.threshold != 0) & (status.threshold <= job.world)
    h.require(~(tables.status_write & sets) | (in_range & ((status.threshold == job.world) | ~job.tree)))
    renewed = status.epoch == (job.epoch + ~request.is_leaf)[:16]
    h.require(~(writes & resets) | (renewed & (status.challenge == next_challenge)))
    for action in (Action.RESET, Action.SET_H, Action.HALT, Action.RESUME):
        h.reach(tables.status_write & (request.action == action))
    return h


def departs_alone(part: Any) -> Harness:
    """A member that leaves is no longer a member, claims nothing, and has no rank; the others keep all of theirs."""
    h = Harness(dut := part.Departure(CONFIG))
    h.constant_inputs()
    tables, request = dut.tables, dut.request
    h.assume((dut.member < CONFIG.members) & (request.headers.frame.job < CONFIG.jobs))
    job, row, claims = tables.job_row, tables.member_row, tables.claims_row
    bit = Signal(CONFIG.members)
    h.m.d.comb += bit.eq(1 << dut.member)
    writes = tables.entry_write
    others = job.live & ~bit
    last = (others & ~job.admitted) == 0
    h.require((tables.roster_write == writes) & (tables.claims_write == writes) & (~tables.status_write | writes))
    h.require(
        ~(tables.entry_write | dut.done) | (tables.member == dut.member) & (tables.job == request.headers.frame.job)
    )
    h.require(~writes | (~tables.entry_next.live & tables.entry_next.left))
    h.require(~writes | ((tables.roster_next.live == others) & (tables.roster_next.joining == (job.joining & ~bit))))
    h.require(~writes | (tables.claims_next.waiting == (claims.waiting & ~bit)))
    for before, kept in zip(claims.grants, tables.claims_next.grants, strict=True):
        same = (kept.valid == before.valid) & (kept.base == before.base) & (kept.members == (before.members & ~bit))
        h.require(~writes | same)
    for k in range(CONFIG.members):
        h.require(~writes | (tables.claims_next.last[k] == Mux(bit[k], 0, claims.last[k])))
    status = tables.status_next
    h.require(~tables.status_write | (status.ranks == (job.ranks & ~row.ranks)))
    h.require(~tables.status_write | (status.challenge == (job.challenge + 1)[: len(job.challenge)]))
    # The end of the job follows if no member is left that has its state, and else the sweep.
    ends = dut.follow_up == FollowUp.ERASE_JOB
    sweeps = dut.follow_up == FollowUp.SWEEP_SLOTS
    h.require(~dut.done | (Cat(ends, sweeps, dut.requests_parent).any() & (sweeps == ~last)))
    h.require(~dut.requests_parent | (~writes & last & request.is_leaf))
    h.require(~ends | (writes & dut.done))
    for state in (ends, sweeps & dut.done, dut.requests_parent):
        h.reach(state)
    return h


PROOFS = [
    Proof(law=law, part=part, harness=harness, depth=depth, covers_all=True, mutants=mutants)
    for law, part, harness, depth, mutants in (
        (
            "a frame counts as a member's only if that is live, with the job's epoch and its token, port and addresses",
            hw.decide.checks,
            accepts_frames_of_members,
            4,
            (
                ("(frame.epoch == job.epoch, Outcome.EPOCH), (member_in_range", "(1, Outcome.EPOCH), (member_in_range"),
                ("(member_in_range & member.live, Outcome.MEMBER)", "(member_in_range, Outcome.MEMBER)"),
                ("(token_good, Outcome.TOKEN)", "(1, Outcome.TOKEN)"),
                ("(address_good, Outcome.ADDRESS)", "(port_good, Outcome.ADDRESS)"),
                ("& job.live.bit_select(frame.member, 1), Outcome.FORMING", ", Outcome.FORMING"),
                ("self.fault.eq(frame_fault | corrupt | row_fault)", "self.fault.eq(frame_fault | row_fault)"),
                ("scan.ranks | scan.tainted", "scan.ranks"),
            ),
        ),
        (
            "a parent's frame counts only at a leaf, from its port and addresses, a result with its epoch and token",
            hw.decide.checks,
            accepts_results_of_the_parent,
            4,
            (
                ("(frame.token == job.up_job_token, Outcome.TOKEN)", "(1, Outcome.TOKEN)"),
                ("(from_parent_address, Outcome.ADDRESS)", "(1, Outcome.ADDRESS)"),
                ("& (frame.ip_src.as_value() == self.parent.ip)", ""),
                ("(kind.is_leaf, Outcome.TYPE)", "(1, Outcome.TYPE)"),
            ),
        ),
        (
            "a command changes a job only once, from a live member, or with the job's key and the present challenge",
            hw.decide.membership.command,
            commands_come_from_members,
            6,
            (
                ("with m.Elif(~token_matches):", "with m.Elif((~token_matches) & 0):"),
                ("with m.Elif(~sender_matches):", "with m.Elif((~sender_matches) & 0):"),
                ("with m.Elif(is_repeat):", "with m.Elif((is_repeat) & 0):"),
                ("with m.Elif(number_ahead[31]):", "with m.Elif((number_ahead[31]) & 0):"),
                ("with m.If(~challenge_matches):", "with m.If((~challenge_matches) & 0):"),
                ("with m.Elif(~key_matches):", "with m.Elif((~key_matches) & 0):"),
                ("with m.Elif(resets & ~epoch_matches):", "with m.Elif((resets & ~epoch_matches) & 0):"),
                ("with m.Elif(member_out_of_range | ~row.live):", "with m.Elif(member_out_of_range):"),
                (
                    "challenge.eq(Mux(resets | resumes, job.challenge + 1,",
                    "challenge.eq(Mux(resets, job.challenge + 1,",
                ),
            ),
        ),
        (
            "a member that departs keeps no entry, rank or claim, the others keep theirs, and the last ends the job",
            hw.decide.membership.departure,
            departs_alone,
            4,
            (
                ("tables.roster_next.joining.eq(job.joining & ~bit)", "tables.roster_next.joining.eq(job.joining)"),
                (
                    "tables.status_next.ranks.eq(job.ranks & ~row.ranks)",
                    "tables.status_next.ranks.eq(job.ranks & ~bit)",
                ),
                (
                    "withdraw_claims(m, tables.claims_row, tables.claims_next, bit)",
                    "withdraw_claims(m, tables.claims_row, tables.claims_next, job.live)",
                ),
                ("(remaining & ~job.admitted) == 0", "remaining == 0"),
            ),
        ),
    )
]
