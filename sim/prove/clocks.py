"""Two clocks of any ratio and any phase, and what may happen to a bit on its path from one to the other."""

from amaranth.hdl import Array, Cat, ClockDomain, EnableInserter, Module, Mux, Shape, Signal, Value
from amaranth.lib.cdc import AsyncFFSynchronizer, FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component

from sim.prove.harness import Harness

__all__ = ["ClocksHarness", "Path"]


class Path:
    """The bits of a signal on their path through a synchronizer.

    Attributes
    ----------
    arrived : Signal
        The bits at the end of their wires, in front of the first flip-flop.
    stages : list of Signal
        The flip-flops. The last one is the output.
    """

    def __init__(self, synchronizer: FFSynchronizer):
        width, init = len(synchronizer.i), synchronizer._init
        self.arrived = Signal(width, init=init)
        self.stages = [Signal(width, name=f"stage_{k}", init=init) for k in range(synchronizer._stages)]


class ClocksHarness(Harness):
    """A component with two clock domains. In each step of a trace either clock, both, or neither may have an edge.

    So the edges of two clocks come in any order, also at the same time, and a clock may stop for any time. Yosys' flow
    knows one clock, that of the steps: a register of the component changes only in a step with an edge of its domain.

    - A bit on its way to a synchronizer arrives at any time before the next edge of the clock that it comes from, and
      each bit of a signal by itself. If it arrives in the step in which it is sampled, either value is sampled.
    - A word that is read from a memory in the step in which it is written is anything.
    - When the trace begins, both domains have been in reset until all synchronizers had their initial values. Then each
      domain stays in reset for any time.

    Parameters
    ----------
    dut : Component
        The component.
    domains : (str, str)
        Its clock domains.

    Attributes
    ----------
    edges : dict of Signal
        By domain, whether its clock has an edge in this step.
    resets : dict of Signal
        By domain, whether it stays in reset.
    ran : dict of Signal
        By domain, whether it left its reset in a step before.
    """

    def __init__(self, dut: Component, domains: tuple[str, str]):
        self.domains = domains
        self.edges = {name: Signal(name=f"{name}_edge") for name in domains}
        self.resets = {name: Signal(name=f"{name}_reset") for name in domains}
        self.ran = {name: Signal(name=f"{name}_ran") for name in domains}
        self._paths: dict[int, Path] = {}
        self._reset_stages: dict[int, list[Signal]] = {}
        self._rows: dict[int, list[Signal]] = {}
        self._free: list[Signal] = []
        self._late: list[Value] = []
        super().__init__(dut, platform=self, within=EnableInserter(self.edges))
        self._ports += [*self.edges.values(), *self.resets.values(), *self._free]
        for name in domains:
            self.m.domains += (domain := ClockDomain(name))
            self.m.d.sync += self.ran[name].eq(self.ran[name] | ~self.resets[name])
            self.m.d.comb += [domain.clk.eq(self._domain.clk), domain.rst.eq(self._domain.rst | self.resets[name])]
            self.assume(~(self.ran[name] & self.resets[name]))
        for late in self._late:
            self.assume(~late)

    def path(self, output: str) -> Path:
        """Return the path that ends in a local variable of the component (as for `inner`)."""
        return self._paths[id(self.inner(output))]

    def reset_stages(self, output: str) -> list[Signal]:
        """Return the flip-flops behind a synchronized reset, a local variable of the component (as for `inner`)."""
        return self._reset_stages[id(self.inner(output))]

    def rows(self, memory: str) -> list[Signal]:
        """Return the words of the memory in a local variable of the component (as for `inner`)."""
        return self._rows[id(self.inner(memory))]

    def get_ff_sync(self, synchronizer: FFSynchronizer) -> Module:
        """Return a synchronizer behind wires of any length. Called by Amaranth."""
        m, path = Module(), Path(synchronizer)
        self._paths[id(synchronizer.o)] = path
        now, choice = Signal.like(path.arrived, name="now"), Signal.like(path.arrived, name="arrives")
        (source,) = (name for name in self.domains if name != synchronizer._o_domain)
        self._free.append(choice)
        self._late.append(self.edges[source] & (now != synchronizer.i))
        m.d.comb += [
            now.eq(Cat(Mux(*bits) for bits in zip(choice, synchronizer.i, path.arrived))),
            synchronizer.o.eq(path.stages[-1]),
        ]
        m.d.sync += path.arrived.eq(now)
        with m.If(self.edges[synchronizer._o_domain]):
            m.d.sync += [stage.eq(before) for stage, before in zip(path.stages, [now, *path.stages])]
        return m

    def get_async_ff_sync(self, synchronizer: AsyncFFSynchronizer) -> Module:
        """Return a synchronizer of a reset, which begins at once. Called by Amaranth."""
        m = Module()
        stages = [Signal(name=f"stage_{k}", init=1) for k in range(synchronizer._stages)]
        self._reset_stages[id(synchronizer.o)] = stages
        with m.If(synchronizer.i):
            m.d.sync += [stage.eq(1) for stage in stages]
        with m.Elif(self.edges[synchronizer._o_domain]):
            m.d.sync += [stage.eq(before) for stage, before in zip(stages, [0, *stages])]
        m.d.comb += synchronizer.o.eq(synchronizer.i | stages[-1])
        return m

    def get_memory(self, memory: Memory) -> Module:
        """Return a memory whose words have names, with one port to write and one to read. Called by Amaranth."""
        m = Module()
        (put,), (get,) = memory.write_ports, memory.read_ports
        width = Shape.cast(memory.shape).width
        self._rows[id(memory)] = rows = [Signal(width, name=f"row_{k}", reset_less=True) for k in range(memory.depth)]
        anything, data = Signal(width, name="anything"), Signal(width, name="data", reset_less=True)
        self._free.append(anything)
        writes = Signal()
        m.d.comb += [Value.cast(get.data).eq(data), writes.eq(self.edges[put.domain] & put.en)]
        with m.If(self.edges[get.domain] & get.en):
            m.d.sync += data.eq(Mux(writes & (put.addr == get.addr), anything, Array(rows)[get.addr]))
        with m.If(writes):
            m.d.sync += Array(rows)[put.addr].eq(Value.cast(put.data))
        return m
