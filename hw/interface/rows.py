"""Rows of the tables of jobs, members, slots and claims."""

from amaranth.hdl import Cat, Value, signed
from amaranth.lib import data
from amaranth.utils import exact_log2

from hw.interface.address import Address
from iswitch.config import Config
from iswitch.wire import SEGMENTS_MAX, JobState, Reason, SlotState

__all__ = [
    "CHALLENGE_BITS",
    "COLLECTIVE_BITS",
    "DIGEST_BITS",
    "RING_FIELDS",
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

SEQ_BITS, TICK_BITS, CHALLENGE_BITS = 32, 16, 32
COLLECTIVE_BITS, DIGEST_BITS = 32, 16


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
    "job_token",
)
"""Fields of a job that its creator sets, written once."""


ROSTER_FIELDS = ("live", "joining", "admitted", "admitted_seq")
"""Fields of a job that also change at a boundary, not only by control messages."""


RING_FIELDS = ("incarnation", "empty_lap")
"""Fields of a job that the reset of its ring writes, and the end of the job leaves."""


SENDER_FIELDS = ("nonce", "address", "port")
"""Fields of a member that its first Join sets, written once."""


def job_row(config: Config) -> data.StructLayout:
    """Return the layout of a job's row.

    `elements`: elements of its largest segment. `limit`: the biased exponent from which window64 rejects an element.
    `challenge`: counts since the last reset, also while the number has no job. `segments`: 0 for a synchronous job.
    `live`, `joining`, `admitted`, `admitted_seq`: as in the model's `slot.Ring`. `incarnation`: of the ring, to which a
    slot must belong to have any content. `empty_lap`: the upper bits of the seqs of empty slots, which stand one lap
    before the first seq. `renewed`: the job has begun anew.

    In trees, `tree`: as in the model's `job.Job`; `ranks`: the ranks of all confirmed members; `up_...`: the switch's
    membership at its parent, as in the model's `tree_member.ParentMembership`.
    """
    return data.StructLayout(
        {
            "state": JobState,
            "epoch": 16,
            "first_seq": SEQ_BITS,
            "challenge": CHALLENGE_BITS,
            "renewed": 1,
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
            "job_token": 32,
            "live": config.members,
            "joining": config.members,
            "admitted": config.members,
            "admitted_seq": SEQ_BITS,
            "incarnation": exact_log2(config.slots),
            "empty_lap": SEQ_BITS - exact_log2(config.slots),
            **(
                {
                    "tree": 1,
                    "ranks": config.members,
                    "up_nonce": 64,
                    "up_member": 8,
                    "up_token": 32,
                    "up_job_token": 32,
                    "up_challenge": CHALLENGE_BITS,
                    "up_ran": 1,
                    "up_reason": Reason,
                }
                if config.uplinks
                else {}
            ),
        }
    )


def member_row(config: Config) -> data.StructLayout:
    """Return the layout of a member's row, which is an entry of its job.

    `live`: the member is live or joining. `left`: the member has left; `token` stays valid, so that a repeated Leave
    can be answered. `ranks`: the member's global ranks. `sends_uplinks`: its Join
    named them, as a switch's does.
    """
    return data.StructLayout(
        {
            "live": 1,
            "left": 1,
            "token": 32,
            "nonce": 64,
            "address": Address,
            "port": 4,
            "number": 32,
            **({"ranks": config.members, "sends_uplinks": 1} if config.uplinks else {}),
        }
    )


def slot_row(config: Config) -> data.StructLayout:
    """Return the layout of a slot's row, with the fields of the model's `slot.Slot`.

    `length` is in bytes. In trees `tainted` and `ranks` are sets of ranks; `ranks` and `partial` are those of the
    model's `slot.Contributors`.
    A slot belongs to an `incarnation` of its job's ring; in any other, its state reads as EMPTY, and no other field has
    a meaning. As many incarnations are told apart as the ring has slots.
    """
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
            "incarnation": exact_log2(config.slots),
            "collective": COLLECTIVE_BITS,
            "digest": DIGEST_BITS,
            "rival": COLLECTIVE_BITS,
            **({"ranks": members, "partial": 1} if config.uplinks else {}),
        }
    )


def slot_number(config: Config, job: Value, seq: Value) -> Value:
    """Return the number of the slot of `job` to which `seq` belongs."""
    return Cat(seq[: exact_log2(config.slots)], job[: exact_log2(config.jobs)])


def claims_row(config: Config) -> data.StructLayout:
    """Return the layout of an asynchronous job's claims, as in the model's `claims.Claims`.

    `base`: of the next update. `waiting`: the set of members that wait for a grant. `last`: each member's last k.
    `grants`: the kept grants, newest first.
    """
    grant = data.StructLayout({"valid": 1, "base": SEQ_BITS, "members": config.members})
    return data.StructLayout(
        {
            "base": SEQ_BITS,
            "waiting": config.members,
            "last": data.ArrayLayout(SEQ_BITS, config.members),
            "grants": data.ArrayLayout(grant, config.staleness + 1),
        }
    )
