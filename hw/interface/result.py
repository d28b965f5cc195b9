"""A result on its way to the ports."""

from amaranth.lib import data

from hw.interface.rows import SEQ_BITS
from iswitch.config import Config

__all__ = ["ResultHeader", "ResultMeta"]


class ResultHeader(data.StructLayout):
    """What the header of a result says, and who gets it (`recipients`, members of `job`, the parent behind them).
    `length`: payload bytes at four an element. `up`: it is an uplink, whose other fields are these and the `partial` of
    its tail. A GRANT has no length: its `seq` is the base, its `members` those granted."""

    def __init__(self, config: Config):
        super().__init__(
            {
                "job": range(config.jobs),
                "epoch": 16,
                "seq": SEQ_BITS,
                "numeric": 4,
                "flags": 4,
                "members": config.members,
                "tainted": config.members,
                "recipients": config.members + config.uplinks,
                "length": range(4 * config.elements + 1),
                **({"up": 1, "member": 8, "token": 32, "behind": 16, "partial": 1} if config.uplinks else {}),
            }
        )


class ResultMeta(data.StructLayout):
    """What stands beside the words of a result: its header, and the frame's length in bus words."""

    def __init__(self, config: Config):
        super().__init__(
            {"header": ResultHeader(config), "words": range(config.header_words + config.segment_words + 2)}
        )
