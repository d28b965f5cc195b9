"""Rows of the tables of jobs, members, slots and claims."""

from amaranth.hdl import Cat, Value, signed
from amaranth.lib import data
from amaranth.utils import exact_log2

from hw.interface.address import Address
from iswitch.config import Config
from iswitch.wire import SEGMENTS_MAX, JobState, Reason, SlotState

__all__ = [
    "ROSTER_FIELDS",
    "SENDER_FIELDS",
    "SEQ_BITS",
    "SETTINGS_FIELDS",
    "TICK_BITS",
    "claims_row",
    "job_row",
    "member_row",
    "slot_number",
    "slot_row",
]

SEQ_BITS, TICK_BITS = 32, 16


SETTINGS_FIELDS = (
    "world",
    "numeric",
    "fraction",
    "limit",
    "elements",
    "mode",
    "key",
    "deadline_us",
    "evict_us",
    "staleness",
    "segments",
)
"""Of a job: what its founder says, written once."""


ROSTER_FIELDS = ("live", "joining", "admitted", "admitted_seq")
"""Of a job: what changes at a boundary, too, and not only by control messages."""


SENDER_FIELDS = ("nonce", "address", "port")
"""Of a member: what its first Join says, written once."""


def job_row(config: Config) -> data.StructLayout:
    """One job. `elements` is its largest segment, `limit` the biased exponent at which window64 rejects; `deadline` and
    `evict` in microseconds; `segments` is 0 if it is synchronous. Of `live`, `joining`, `admitted` and `admitted_seq` the
    model's `ring.Ring` says what they are. In trees: `tree` as in the model's `membership.Job`, `ranks` those of all
    who have confirmed, and what the switch is to its parent (`up_...`, the model's `tree_switch.ParentMembership`)."""
    return data.StructLayout(
        {
            "state": JobState,
            "epoch": 16,
            "first_seq": SEQ_BITS,
            "world": range(config.members + 1),
            "threshold": range(config.members + 1),
            "numeric": 4,
            "fraction": signed(9),
            "limit": 8,
            "elements": range(config.elements + 1),
            "mode": 1,
            "key": 64,
            "deadline_us": 31,
            "evict_us": 29,
            "staleness": range(config.staleness + 1),
            "segments": range(SEGMENTS_MAX if config.staleness else 1),
            "live": config.members,
            "joining": config.members,
            "admitted": config.members,
            "admitted_seq": SEQ_BITS,
            **(
                {
                    "tree": 1,
                    "ranks": config.members,
                    "up_nonce": 64,
                    "up_member": 8,
                    "up_token": 32,
                    "up_running": 1,
                    "up_reason": Reason,
                }
                if config.uplinks
                else {}
            ),
        }
    )


def member_row(config: Config) -> data.StructLayout:
    """One member of one job. `pending`: the Join was answered but not yet confirmed; `live`: it was, and the member is
    live or joining. The token outlives a departure, so that a repeated Leave can be answered. `ranks`: its global
    ranks."""
    return data.StructLayout(
        {
            "pending": 1,
            "live": 1,
            "token": 32,
            "nonce": 64,
            "address": Address,
            "port": 4,
            "number": 32,
            **({"ranks": config.members} if config.uplinks else {}),
        }
    )


def slot_row(config: Config) -> data.StructLayout:
    """One slot; the fields are those of the model's `ring.Slot`. `length` in bytes. In trees `tainted` is by rank, as
    are `ranks`, and `partial` stands beside them (the model's `ring.Names`)."""
    members = config.members
    return data.StructLayout(
        {
            "seq": SEQ_BITS,
            "state": SlotState,
            "arrived": members,
            "members": members,
            "tainted": members,
            "expected": members,
            "numeric": 4,
            "length": range(4 * config.elements + 1),
            "boundary": 1,
            "requires_all": 1,
            "members_changed": 1,
            "opened_us": 32,
            **({"ranks": members, "partial": 1} if config.uplinks else {}),
        }
    )


def slot_number(config: Config, job: Value, seq: Value) -> Value:
    """Of the slot of a job to which a seq belongs."""
    return Cat(seq[: exact_log2(config.slots)], job[: exact_log2(config.jobs)])


def claims_row(config: Config) -> data.StructLayout:
    """What is claimed in one asynchronous job, as in the model's `claims.Claims`: the `base` of the next update, the
    set `waiting`, each member's `last` k, and the kept grants, newest first."""
    grant = data.StructLayout({"valid": 1, "base": SEQ_BITS, "members": config.members})
    return data.StructLayout(
        {
            "base": SEQ_BITS,
            "waiting": config.members,
            "last": data.ArrayLayout(SEQ_BITS, config.members),
            "grants": data.ArrayLayout(grant, config.staleness + 1),
        }
    )
