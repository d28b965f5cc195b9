"""The logic that every board puts around the switch: microseconds, seed, addresses and LEDs."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.interface.address import Parent
from hw.stream.packet import Packet
from hw.switch import Switch
from iswitch.config import Config
from iswitch.wire import Outcome

__all__ = ["LIT_US", "Microseconds", "Shell", "parse_operator_key", "wire_order"]

LIT_US = 1 << 16
"""How long an LED stays on after its event: about 65 ms, the shortest visible flash."""


def wire_order(address: str) -> int:
    """Return a MAC address ("02:69:73:00:00:01") or IPv4 address ("10.0.0.100") as the switch takes it, first byte
    lowest. Raises ValueError for anything else."""
    parts = (
        [int(byte, 16) for byte in address.split(":")] if ":" in address else [int(byte) for byte in address.split(".")]
    )
    if len(parts) != (6 if ":" in address else 4) or not all(0 <= part < 256 for part in parts):
        raise ValueError(f"address must be a MAC or an IPv4 address, not {address!r}")
    return int.from_bytes(bytes(parts), "little")


def parse_operator_key(text: str) -> int:
    """Return an operator key from decimal digits, or hexadecimal ones after 0x. Raises ValueError, without the text,
    for anything else."""
    try:
        key = int(text, 0)
    except ValueError:
        key = -1
    if not 0 <= key < 1 << 64:
        raise ValueError("operator key must be 0 to 2^64 - 1, in decimal digits or in hexadecimal ones after 0x")
    return key


class Microseconds(wiring.Component):
    """Counts microseconds of a clock of any whole number of hertz from 1 MHz on, without drift: a step is early or late
    by less than a cycle."""

    def __init__(self, *, clock_hz: int):
        if clock_hz != int(clock_hz) or clock_hz < 1_000_000:
            raise ValueError(f"Microseconds clock_hz must be a whole number of at least 1,000,000, not {clock_hz!r}")
        self.clock_hz = int(clock_hz)
        super().__init__({"now": Out(32), "tick": Out(1)})

    def elaborate(self, platform):
        m = Module()
        phase, tick = Signal(range(self.clock_hz)), Signal()
        m.d.comb += [tick.eq(phase >= self.clock_hz - 1_000_000), self.tick.eq(tick)]
        m.d.sync += phase.eq(phase + 1_000_000)
        with m.If(tick):
            m.d.sync += [phase.eq(phase - (self.clock_hz - 1_000_000)), self.now.eq(self.now + 1)]
        return m


class Shell(wiring.Component):
    """The switch in clock domain `sync` of `clock_hz`, with all inputs that a board must provide, except frames and
    memory.

    `rx` and `tx` carry frames without preamble and FCS in `sync`; MACs bring their own clock domain crossings.
    `own_mac` and `own_ip` are in wire order. They and `operator_key`, 0 for none, do not change while frames pass.
    `link` is an input for each port. A port that has never reported a link counts as connected, because some PHYs do
    not report it.

    `leds`: one for each port, on with its link and off for a moment with each frame; then one that flashes with each
    accepted contribution; then one that flashes with each frame that is lost here for lack of room or because it was
    damaged.

    The seed of tokens and epochs is a count of cycles since configuration, which a reset does not stop: the time of the
    first Join cannot be repeated to 10 ns.
    """

    def __init__(self, config: Config, *, clock_hz: int):
        self.config = config
        self.clock = Microseconds(clock_hz=clock_hz)
        self.switch = Switch(config)
        word = stream.Signature(Packet(config.bus_bits))
        engine = self.switch.engine
        super().__init__(
            {
                "rx": In(word).array(config.ports),
                "tx": Out(word).array(config.ports),
                "link": In(config.ports),
                "own_mac": In(48),
                "own_ip": In(32),
                "operator_key": In(64),
                "parents": In(Parent).array(config.jobs),
                "leds": Out(config.ports + 2),
                **({"memory": Out(engine.memory.signature)} if engine else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = clock = self.clock
        m.submodules.switch = switch = self.switch
        reported = Signal(self.config.ports)
        m.d.sync += reported.eq(reported | self.link)
        cycles = Signal(64, reset_less=True)
        m.d.sync += cycles.eq(cycles + 1)
        m.d.comb += [
            switch.now_us.eq(clock.now),
            switch.operator_key.eq(self.operator_key),
            switch.link.eq(self.link | ~reported),
            switch.seed.eq(cycles),
            switch.own_mac.eq(self.own_mac),
            switch.own_ip.eq(self.own_ip),
        ]
        for job in range(self.config.jobs):
            m.d.comb += switch.parents[job].eq(self.parents[job])
        if switch.engine:
            connect(m, switch.memory, flipped(self.memory))

        frames = []
        for port in range(self.config.ports):
            connect(m, flipped(self.rx[port]), switch.rx[port])
            connect(m, switch.tx[port], flipped(self.tx[port]))
            frames.append(switch.rx[port].valid & switch.rx[port].payload.last)
        added = switch.traced & (switch.trace.outcome == Outcome.ADDED)
        for k, event in enumerate((*frames, added, switch.dropped)):
            left = Signal(range(LIT_US + 1), name=f"left_{k}")
            lit = left != 0
            m.d.sync += self.leds[k].eq(self.link[k] & ~lit if k < self.config.ports else lit)
            with m.If(event):
                m.d.sync += left.eq(LIT_US)
            with m.Elif(clock.tick & lit):
                m.d.sync += left.eq(left - 1)
        return m
