"""The rule of streams on every component: what is offered stays until it is taken, also on streams inside."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from sim.prove.harness import Harness

__all__ = ["keeps_the_rule", "streams"]


def streams(part: Component, flow: Any) -> Iterator[stream.Interface]:
    """Return the streams of a component that go in or out and may stall."""
    for name, member in part.signature.members.items():
        if not member.is_signature or not isinstance(member.signature, stream.Signature) or member.flow is not flow:
            continue
        if member.signature.always_ready or member.signature.always_valid:
            continue
        stack = [getattr(part, name)]
        while stack:
            item = stack.pop()
            if isinstance(item, list | tuple):
                stack.extend(item)
            else:
                yield item


def keeps_the_rule(make: Callable[[Any], Component], part: Any) -> Harness:
    """Return a component whose inputs keep the rule, with the rule as a property of its outputs and of those of all
    components inside."""
    h = Harness(make(part))
    h.free_inputs()
    for item in streams(h.dut, In):
        h.assume(h.holds(item))
    for inside in h.parts():
        for item in streams(inside, Out):
            h.require(h.holds(item))
            h.reach(item.valid & ~item.ready)
    return h
