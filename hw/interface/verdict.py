"""The verdict on a frame, and the operation of the aggregator that follows from it."""

from amaranth.hdl import signed
from amaranth.lib import data

from hw.interface.address import BINDINGS_BITS
from hw.interface.elements import ElementForm
from hw.interface.host_reply import HostReply
from hw.interface.result import ResultHeader
from hw.stream.packet import LENGTH_BITS
from iswitch.config import Config
from iswitch.wire import Operation

__all__ = ["Verdict", "Work"]


class Work(data.StructLayout):
    """One operation for the aggregator.

    `bindings`: how many bindings of a member to an address the switch had made when it decided on the operation.
    `include`: add the payload. `first`: overwrite the slot. `write`: store the sum. `emit`: send the sum with the
    header `result`. `wide`: the payload has 8 bytes an element. `tailed`: a tail follows the payload. `as_is`: the sum
    is a result of the parent, stored and sent unchanged.
    """

    def __init__(self, config: Config):
        super().__init__(
            {
                "operation": Operation,
                "slot": range(config.jobs * config.slots),
                "bindings": BINDINGS_BITS,
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
    """The core's decision on a frame. With `frame` = 0 it is an operation without a frame.

    `ports`: ports that send an ordinary frame; if `host_reply` is valid, the frame leaves as that reply. `works`:
    `work` is an operation for the aggregator; without `works` it means nothing. `replay`: the frame is a replay request
    received at `port`. `length`: bytes of the frame. `form`: what the elements of its payload are.
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
                **({"form": ElementForm} if config.half_width else {}),
            }
        )
