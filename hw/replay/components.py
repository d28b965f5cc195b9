"""Components of the replay service that reports measure alone, each built for a switch's Config."""

from collections.abc import Callable
from typing import Any

from amaranth.lib.wiring import Component
from amaranth.utils import exact_log2

from hw.interface.axi import address_bits_of
from hw.interface.reply import ReplyRoute
from hw.replay.engine import Engine
from hw.replay.execute.acknowledge import Acknowledgement
from hw.replay.execute.data import DataSender
from hw.replay.execute.execution import Execution
from hw.replay.memory.units import UnitReader, UnitWriter
from hw.replay.reply.answers import AnswerSender
from hw.replay.reply.cache import ReplyCache
from hw.replay.reply.framer import ReplyFramer, queue_words
from hw.replay.request.admission import Admission
from hw.replay.request.header_check import HeaderCheck
from hw.replay.request.reader import RequestReader
from hw.replay.request.receiver import RequestReceiver
from hw.replay.request.sessions import Sessions
from hw.replay.sampling.fractions import RandomFractions
from hw.replay.sampling.histogram import Histogram
from hw.replay.sampling.sampler import Sampler
from hw.replay.sampling.samplers import HANDLE_BITS, Samplers, tree_arity
from hw.replay.sampling.slots import SlotTable
from hw.replay.sampling.sum_tree import SumTree
from hw.stream.store_and_forward import StoreAndForward
from iswitch.config import Replay

__all__ = ["COMPONENTS"]


def priorities(replay: Replay) -> dict[str, Any]:
    return {"capacity": replay.capacity, "priority_bits": replay.priority_bits, "single_copy": replay.single_copy}


def handles(replay: Replay) -> dict[str, Any]:
    return priorities(replay) | {"generation_bits": HANDLE_BITS - exact_log2(replay.capacity)}


COMPONENTS: dict[str, Callable[[Any], Component]] = {
    "engine": Engine,
    "samplers": lambda c: Samplers(c.replay),
    "sampler": lambda c: Sampler(**handles(c.replay), arity=tree_arity(c.replay)),
    "sum tree": lambda c: SumTree(**priorities(c.replay), arity=tree_arity(c.replay)),
    "slots": lambda c: SlotTable(**handles(c.replay)),
    "histogram": lambda c: Histogram(capacity=c.replay.capacity, priority_bits=c.replay.priority_bits),
    "fractions": lambda c: RandomFractions(),
    "reader": lambda c: RequestReader(c.replay),
    "execution": lambda c: Execution(c.replay),
    "acknowledgement": lambda c: Acknowledgement(c.replay),
    "header check": lambda c: HeaderCheck(c.replay),
    "admission": lambda c: Admission(c.replay),
    "sessions": lambda c: Sessions(sessions=c.replay.sessions, cached_answers=c.replay.cached_answers),
    "reply cache": lambda c: ReplyCache(c.replay, bus_bits=c.bus_bits),
    "answer sender": lambda c: AnswerSender(c.replay, bus_bits=c.bus_bits),
    "data sender": lambda c: DataSender(c.replay, bus_bits=c.bus_bits),
    "receiver": lambda c: RequestReceiver(bus_bits=c.bus_bits, depth=c.replay.request_bytes // c.bus_bytes),
    "framer": lambda c: ReplyFramer(bus_bits=c.bus_bits),
    "store-and-forward": lambda c: StoreAndForward(bus_bits=c.bus_bits, depth=queue_words(c.bus_bits), meta=ReplyRoute),
    "unit reader": lambda c: UnitReader(address_bits_of(c.replay.memory_bytes), data_bits=c.bus_bits),
    "unit writer": lambda c: UnitWriter(address_bits_of(c.replay.memory_bytes), data_bits=c.bus_bits),
}
"""Name of a component, and what builds it for the Config of a switch with a replay service."""
