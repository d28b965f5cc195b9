"""A component with free inputs, and the properties that hold around it."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, ClockDomain, Const, Cover, Fragment, Module, Shape, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In

from hw.synthesis.emit import payload_memories_uninitialised

__all__ = ["BEGUN", "TOP", "Harness", "after"]

TOP = "top"
BEGUN = "begun"
"""The register that is 0 in the first cycle only. No other register has an initial value."""


class Harness:
    """A component, whose inputs are free unless they are driven here, and properties of its ports and registers.

    Every trace begins with a reset from an arbitrary state, as on a board: afterwards control state has its initial
    value, and data registers and memories hold anything. Properties are in force from the cycle behind the reset on.

    Parameters
    ----------
    dut : Component
        The component. It is elaborated here, once.
    platform : object, optional
        What the component is elaborated for: its methods replace parts of Amaranth's library.
    within : callable, optional
        A transformer that is applied to the elaborated component.

    Attributes
    ----------
    m : Module
        Registers of the properties go here. They are reset, too.
    dut : Component
    """

    def __init__(self, dut: Component, *, platform: Any = None, within: Callable[[Fragment], Fragment] | None = None):
        self.dut, self.m = dut, Module()
        self._ports: list[Signal] = []
        netlist, self._locals = elaborated(dut, platform)
        self.m.submodules.dut = within(netlist) if within else netlist
        self._parts = [
            part for part in (known["self"] for known in self._locals.values()) if isinstance(part, Component)
        ]
        self.m.domains.sync = self._domain = ClockDomain("sync")
        self._begun = Signal(name=BEGUN, reset_less=True)
        self.m.d.sync += self._begun.eq(1)
        self.m.d.comb += Assume(self._domain.rst == ~self._begun)

    def free(self, shape, name: str) -> Signal:
        """Return a new input that has any value in any cycle."""
        signal = Signal(shape, name=name)
        self._ports.append(signal)
        return signal

    def constant(self, shape, name: str) -> Signal:
        """Return a value that is arbitrary, but the same in all cycles."""
        signal = self.free(shape, name)
        before = Signal.like(signal, name=f"{name}_before", reset_less=True)
        self.m.d.sync += before.eq(signal)
        self.assume(signal == before)
        return signal

    def free_inputs(self, *driven: Value) -> None:
        """Make all inputs of the component free, but those that are `driven` elsewhere."""
        ours = {id(value) for value in driven}
        for path, member, value in self.dut.signature.flatten(self.dut):
            target = Value.cast(value)
            if member.flow is In and id(value) not in ours and not isinstance(target, Const):
                self.m.d.comb += target.eq(self.free(Shape.cast(target.shape()), "__".join(map(str, path))))

    def constant_inputs(self, *driven: Any) -> None:
        """Give each input of the component, but those that are `driven` elsewhere, a value that is arbitrary, but the
        same in all cycles."""
        ours = {id(value) for value in driven}
        for path, member, value in self.dut.signature.flatten(self.dut):
            target = Value.cast(value)
            if member.flow is In and id(value) not in ours and not isinstance(target, Const):
                self.m.d.comb += target.eq(self.constant(Shape.cast(target.shape()), "__".join(map(str, path))))

    def inner(self, path: str) -> Any:
        """Return what a local variable holds when `elaborate` returns: "room" of the component, or "fifo.level" of the
        component in its local variable `fifo`.

        Raises
        ------
        ValueError
            If there is no such variable.
        """
        value: Any = self.dut
        for name in path.split("."):
            known = self._locals.get(id(value), {})
            if name not in known and not hasattr(value, name):
                raise ValueError(f"Harness inner path must name local variables of {value!r}, not {path!r}")
            value = known[name] if name in known else getattr(value, name)
        return value

    def parts(self) -> list[Component]:
        """Return the component and all components inside."""
        return [self.dut, *(part for part in self._parts if part is not self.dut)]

    def require(self, condition) -> None:
        """Add the property that the condition holds in every cycle."""
        with self.m.If(self._begun):
            self.m.d.comb += Assert(condition, src_loc_at=1)

    def assume(self, condition) -> None:
        """Restrict the traces to those in which the condition holds in every cycle."""
        with self.m.If(self._begun):
            self.m.d.comb += Assume(condition)

    def reach(self, condition) -> None:
        """Add a state that some trace must reach, so that the properties are not true for lack of traces."""
        with self.m.If(self._begun):
            self.m.d.comb += Cover(condition, src_loc_at=1)

    def holds(self, item: stream.Interface, edge: Any = 1) -> Value:
        """Return whether a stream keeps the rule of `lib.stream`: an item that was offered and not taken is offered
        again, unchanged. `edge`: the cycles in which the stream's clock has an edge."""
        index = len(self._ports)
        valid, payload = Value.cast(item.valid), Value.cast(item.payload)
        waits = Signal(name=f"waits_{index}_{len(payload)}")
        shown = Signal(len(payload), name=f"shown_{index}_{len(payload)}", reset_less=True)
        with self.m.If(edge):
            self.m.d.sync += [waits.eq(valid & ~item.ready), shown.eq(payload)]
        return ~waits | (valid & (payload == shown))

    def taken(self, item: stream.Interface, edge: Any = 1) -> Value:
        """Return whether a stream passes an item in this cycle. `edge`: as for `holds`."""
        return Value.cast(item.valid) & item.ready & edge

    def rtlil(self) -> str:
        """Return component and properties as RTLIL, top module `TOP`."""
        with payload_memories_uninitialised():
            return rtlil.convert(self.m, name=TOP, ports=[self._domain.clk, self._domain.rst, *self._ports])


def after(h: Harness, cycles: int) -> Value:
    """Return a bit that is 1 from the given cycle behind the reset on."""
    age = Signal(range(cycles + 1), name="age")
    h.m.d.sync += age.eq(age + (age != cycles))
    return age == cycles


def elaborated(dut: Component, platform: Any = None) -> tuple[Fragment, dict[int, dict[str, Any]]]:
    """Return a component's netlist, and the local variables of `elaborate` of each component inside, by its `id`."""
    variables: dict[int, dict[str, Any]] = {}

    def keep(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name == "elaborate":
            variables[id(frame.f_locals["self"])] = dict(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(keep)
    try:
        return Fragment.get(dut, platform), variables
    finally:
        sys.setprofile(before)
