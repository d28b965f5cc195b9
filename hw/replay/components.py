# amaranth: UnusedElaboratable=no
# (An answerer asks what Kept knows, of which nothing is built with it. Amaranth looks for this in the first line.)
"""The parts of the replay service that can be measured alone, each as a switch's Config asks for it."""

from collections.abc import Callable
from typing import Any

from amaranth.lib.wiring import Component
from amaranth.utils import exact_log2

from hw.interface.axi import address_bits_of
from hw.replay.engine import Engine
from hw.replay.memory.units import UnitReader, UnitWriter
from hw.replay.reply.answers import Answerer
from hw.replay.reply.cache import Kept
from hw.replay.reply.framer import Outlet
from hw.replay.reply.store_and_forward import WholeFrames
from hw.replay.request.admission import Form, Judge
from hw.replay.request.receiver import Inlet
from hw.replay.request.sessions import Sessions
from hw.replay.sampling.fractions import Draws
from hw.replay.sampling.histogram import Histogram
from hw.replay.sampling.sampler import Sampler
from hw.replay.sampling.samplers import HANDLE_BITS, Tables, arity
from hw.replay.sampling.slots import Slots
from hw.replay.sampling.sum_tree import SumTree
from iswitch.config import Replay

__all__ = ["PARTS"]


def priorities(replay: Replay) -> dict[str, Any]:
    return {"capacity": replay.capacity, "priority_bits": replay.priority_bits, "phased": replay.phased}


def handles(replay: Replay) -> dict[str, Any]:
    return priorities(replay) | {"generation_bits": HANDLE_BITS - exact_log2(replay.capacity)}


PARTS: dict[str, Callable[[Any], Component]] = {
    "engine": Engine,
    "tables": lambda c: Tables(c.replay),
    "sampler": lambda c: Sampler(**handles(c.replay), arity=arity(c.replay)),
    "tree": lambda c: SumTree(**priorities(c.replay), arity=arity(c.replay)),
    "slots": lambda c: Slots(**handles(c.replay)),
    "histogram": lambda c: Histogram(capacity=c.replay.capacity, priority_bits=c.replay.priority_bits),
    "draws": lambda c: Draws(),
    "form": lambda c: Form(c.replay),
    "judge": lambda c: Judge(c.replay),
    "sessions": lambda c: Sessions(sessions=c.replay.sessions, kept=c.replay.kept),
    "kept": lambda c: Kept(c.replay),
    "answerer": lambda c: Answerer(c.replay, Kept(c.replay)),
    "inlet": lambda c: Inlet(bus_bits=c.bus_bits, depth=c.queue_words),
    "outlet": lambda c: Outlet(bus_bits=c.bus_bits),
    "whole": lambda c: WholeFrames(bus_bits=c.bus_bits),
    "unit reader": lambda c: UnitReader(address_bits_of(c.replay.memory_bytes)),
    "unit writer": lambda c: UnitWriter(address_bits_of(c.replay.memory_bytes)),
}
"""Of a switch with a replay service: what is built for its Config."""
