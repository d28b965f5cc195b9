"""Metadata of a result between the core, the aggregator and the ports."""

from amaranth.hdl import Cat, Value
from amaranth.lib import data

from hw.interface.rows import COLLECTIVE_BITS, DIGEST_BITS, SEQ_BITS
from iswitch.config import Config
from iswitch.wire import TAIL_BYTES, UPLINK_TAIL

__all__ = ["HEADER_LEAD", "ResultHeader", "ResultMeta", "header_parity", "reserved_words", "result_words"]

HEADER_LEAD = 5
"""The most cycles without a word between the last header word of a result and its first sums, at the input of the
ports. A port takes as long for the first recipient's address, so the frame leaves without a gap."""


class ResultHeader(data.StructLayout):
    """The fields of a result's header, and the set of its `recipients`: members of `job`, and last the job's parent.

    `length`: bytes of the payload at 4 bytes an element. `token`: the job's, in an uplink the
    switch's own at its parent. `identity` is in the tail; in an uplink it is the digest, in the header. `up`: it is an
    uplink; `member`, `behind`, `collective` and `partial`, which is in the tail, belong to uplinks only. A GRANT has
    length 0; `seq` is the base of the update, `members` are those granted. `grant`: three copies of whether it is one,
    so that no bit error gives it the sums of the next result. `parity`: see `header_parity`.
    """

    def __init__(self, config: Config):
        super().__init__(
            {
                "job": range(config.jobs),
                "epoch": 16,
                "token": 32,
                "seq": SEQ_BITS,
                "numeric": 4,
                "flags": 4,
                "members": config.members,
                "tainted": config.members,
                "recipients": config.members + config.uplinks,
                "length": range(4 * config.elements + 1),
                "identity": DIGEST_BITS,
                **(
                    {"up": 1, "member": 8, "behind": 16, "collective": COLLECTIVE_BITS, "partial": 1}
                    if config.uplinks
                    else {}
                ),
                **({"grant": 3} if config.staleness else {}),
                "parity": 1,
            }
        )


def header_parity(header: data.View) -> Value:
    """Return the even parity of a result's header, without its recipients, which differ from copy to copy."""
    beside = ("recipients", "grant", "parity")
    return Cat(header[name] for name, _ in header.shape() if name not in beside).xor()


def result_words(config: Config) -> int:
    """Return how many bus words the longest result or uplink has."""
    payload = max(4 * config.elements + TAIL_BYTES, 8 * config.uplink_elements + UPLINK_TAIL.itemsize)
    return config.header_words + -(-payload // config.bus_bytes)


def reserved_words(config: Config) -> int:
    """Return how many words of a port's queue of results only GRANTs use: four of them."""
    return 4 * config.header_words


class ResultMeta(data.StructLayout):
    """Metadata of a result: its header, and the words that must be free in a port's queue: those of the frame, and
    `reserved_words` unless it is a GRANT. They are counted where the header waits, so that a port only compares."""

    def __init__(self, config: Config):
        super().__init__(
            {"header": ResultHeader(config), "room": range(result_words(config) + reserved_words(config) + 1)}
        )
