"""What a user of the tables may read and write."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.rows import SEQ_BITS, TICK_BITS, claims_row, job_row, member_row, slot_row
from iswitch.config import Config

__all__ = ["Access"]


class Access(wiring.Signature):
    """One user's view of the tables. It points with `job`, `member` and `slot`; the rows there come one cycle later,
    and a row is written where it points. `acknowledged_write` and `admitted_seq_write` select members whose lowest seq lacked becomes
    `acknowledged_next` or `admitted_seq_next`, `heard_write` those that have been heard now. `job_write` is of a job's row but what
    its founder says, which is written by `settings_write`, too; `member_write` of a member's but who it is, which
    `sender_write` writes, too. These are for who `registers` members: of another's `job_next` only who is live,
    joining or new, and from where, is written."""

    def __init__(self, config: Config, *, registers: bool):
        job, member, slot, claims = job_row(config), member_row(config), slot_row(config), claims_row(config)
        super().__init__(
            {
                "job": Out(range(config.jobs)),
                "member": Out(range(config.members)),
                "slot": Out(range(config.jobs * config.slots)),
                **(
                    {
                        "member_write": Out(1),
                        "sender_write": Out(1),
                        "member_next": Out(member),
                        "settings_write": Out(1),
                    }
                    if registers
                    else {}
                ),
                "job_write": Out(1),
                "job_next": Out(job),
                "slot_write": Out(1),
                "slot_next": Out(slot),
                "acknowledged_write": Out(config.members),
                "acknowledged_next": Out(SEQ_BITS),
                "admitted_seq_write": Out(config.members),
                "admitted_seq_next": Out(SEQ_BITS),
                "heard_write": Out(config.members),
                "claims_write": Out(1),
                "claims_next": Out(claims),
                "job_row": In(job),
                "member_row": In(member),
                "slot_row": In(slot),
                "claims_row": In(claims),
                "acknowledged": In(data.ArrayLayout(SEQ_BITS, config.members)),
                "heard": In(data.ArrayLayout(TICK_BITS, config.members)),
            }
        )
