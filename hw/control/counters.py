"""The registers: what the switch is, and a counter for everything that happens to a frame."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from iswitch.config import Config
from iswitch.wire import MAGIC, VERSION, Outcome, PortCounter, Register, Stat, port_counter_register

__all__ = ["Counters"]


class Counters(wiring.Component):
    """32-bit counters that wrap, read with the configuration through one address; `value` is 1 cycle behind `address`.

    `counts[port][k]` and `stats[k]` are added to their counters every cycle; `outcome` counts in the cycle of `decided`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "decided": In(1), "outcome": In(Outcome), "flushed": In(range(config.lanes + 1)),
            "stats": In(1).array(len(Stat)), "port_events": In(1).array(config.ports, len(PortCounter)),
            "address": In(32), "value": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        registers: dict[int, object] = {
            Register.MAGIC: MAGIC, Register.VERSION: VERSION, Register.PORTS: c.ports, Register.BUS_BITS: c.bus_bits,
            Register.MEMBERS: c.members, Register.JOBS: c.jobs, Register.WINDOW: c.window,
            Register.ELEMENTS: c.elements}

        def count(address, name, increment):
            counter = Signal(32, name=name)
            m.d.sync += counter.eq(counter + increment)
            registers[address] = counter

        for outcome in Outcome:
            count(Register.OUTCOMES + outcome, f"outcome_{outcome.name.lower()}",
                  self.decided & (self.outcome == outcome))
        for stat in Stat:
            count(Register.STATS + stat, f"stat_{stat.name.lower()}",
                  self.flushed if stat == Stat.TERMS_FLUSHED else self.stats[stat])
        for port in range(c.ports):
            for event in PortCounter:
                count(port_counter_register(port, event), f"port{port}_{event.name.lower()}",
                      self.port_events[port][event])

        end = max(registers) + 1
        table = Array(registers.get(address, 0) for address in range(end))
        m.d.sync += self.value.eq(Mux(self.address < end, table[self.address[:end.bit_length()]], 0))
        return m
