"""The verdict on a frame, and the operation of the aggregator that follows from it."""

from amaranth.hdl import signed
from amaranth.lib import data

from hw.interface.host_reply import HostReply
from hw.interface.result import ResultHeader
from hw.stream.packet import LENGTH_BITS
from iswitch.config import Config
from iswitch.wire import Operation

__all__ = ["Verdict", "Work"]


class Work(data.StructLayout):
    """One operation for the aggregator.

    `include`: the payload is added. `first`: it overwrites what is stored. `write`: the sum is stored. `emit`: the sum leaves
    with the header `result`. In trees, `wide`: the payload has 8 bytes an element; `tailed`: a tail follows it; `as_is`:
    what is stored is a result from the parent.
    """

    def __init__(self, config: Config):
        super().__init__(
            {
                "operation": Operation,
                "slot": range(config.jobs * config.slots),
                "include": 1,
                "first": 1,
                "write": 1,
                "emit": 1,
                "fraction": signed(9),
                "limit": 8,
                "result": ResultHeader(config),
                **({"wide": 1, "tailed": 1, "as_is": 1} if config.uplinks else {}),
            }
        )


class Verdict(data.StructLayout):
    """What happens to a frame, or, if `frame` is 0, an operation without a frame.

    `works`: the aggregator has `work` to do. `ports` is the set of ports by which an ordinary frame leaves, as the
    `host_reply` if that is valid. `replay`: the frame is a request for the replay service, from `port`. `length` is the
    frame's, in bytes.
    """

    def __init__(self, config: Config):
        super().__init__(
            {
                "frame": 1,
                "ports": config.ports,
                "host_reply": HostReply,
                "length": LENGTH_BITS,
                "works": 1,
                "work": Work(config),
                **({"replay": 1, "port": 4} if config.replay else {}),
            }
        )
