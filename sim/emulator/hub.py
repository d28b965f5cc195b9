"""A stand-in for the switch that compiles in seconds: a hub that sends every frame out of every port."""

from amaranth.back import rtlil
from amaranth.hdl import Array, Cat, ClockDomain, Module, Mux, Signal
from amaranth.lib.fifo import SyncFIFOBuffered

from iswitch.config import Config
from iswitch.wire import Outcome
from sim.emulator.wrapper import PARENT_BITS

__all__ = ["ECHO", "SMALL", "hub", "swapped"]

SMALL = Config(ports=2, bus_bits=64)
ECHO = Config(ports=2, bus_bits=512)


def swapped(data: Signal):
    """Return the first 64 bytes of an IPv4/UDP frame with source and destination exchanged."""
    mac, ip, port = [(0, 6), (6, 12)], [(26, 30), (30, 34)], [(34, 36), (36, 38)]
    part = lambda span: data[8 * span[0] : 8 * span[1]]
    return Cat(
        part(mac[1]),
        part(mac[0]),
        part((12, 26)),
        part(ip[1]),
        part(ip[0]),
        part(port[1]),
        part(port[0]),
        part((38, 64)),
    )


def hub(config: Config, broken: bool = False, split: bool = False) -> str:
    """Return RTLIL with the ports of the real switch. With a 512-bit bus the hub sends frames back to their port of
    arrival.

    The outcome in its trace is 20 for a frame with an error, else 0; the job is the low byte of the seed. A broken hub
    changes words that wait, and marks the last word as empty. A split hub leaves out the port of arrival, as a switch
    does.
    """
    m = Module()
    m.domains.sync = sync = ClockDomain()
    signals = {
        "clk": sync.clk,
        "rst": sync.rst,
        "now_us": Signal(32, name="now_us"),
        "link": Signal(config.ports, name="link"),
        "seed": Signal(64, name="seed"),
        "operator_key": Signal(64, name="operator_key"),
        "own_mac": Signal(48, name="own_mac"),
        "own_ip": Signal(32, name="own_ip"),
        "parents": Signal(PARENT_BITS * config.jobs, name="parents"),
    }
    for p in range(config.ports):
        shapes = {"data": config.bus_bits, "bytes": range(config.bus_bytes + 1), "last": 1, "valid": 1}
        signals |= {
            f"{side}{p}_{name}": Signal(shape, name=f"{side}{p}_{name}")
            for side in ("rx", "tx")
            for name, shape in shapes.items()
        }
        signals |= {
            f"{name}{p}_{wire}": Signal(name=f"{name}{p}_{wire}")
            for name, wire in (("rx", "error"), ("rx", "ready"), ("tx", "ready"))
        }
    for name, shape in (
        ("busy", 1),
        ("trace_valid", 1),
        ("trace_outcome", max(Outcome).bit_length()),
        ("trace_port", 4),
        ("trace_job", 8),
        ("trace_member", 8),
        ("trace_seq", 32),
    ):
        signals[name] = Signal(shape, name=name)

    rx = lambda name: Array(signals[f"rx{p}_{name}"] for p in range(config.ports))
    granted, inside, first, take = Signal(range(config.ports)), Signal(), Signal(init=1), Signal()
    word = Cat(rx("data")[granted], rx("bytes")[granted], rx("last")[granted])
    queues = []
    for p in range(config.ports):
        queue = m.submodules[f"queue{p}"] = SyncFIFOBuffered(width=len(word), depth=64)
        queues.append(queue)
        data = rx("data")[granted]
        if config.bus_bits == 512:
            data = Mux(first, swapped(data), data)
        m.d.comb += [
            queue.w_data.eq(Cat(data, word[config.bus_bits :])),
            queue.w_en.eq(take & (granted != p) if split else take),
            Cat(*(signals[f"tx{p}_{name}"] for name in ("data", "bytes", "last"))).eq(queue.r_data),
            signals[f"tx{p}_valid"].eq(queue.r_rdy),
            queue.r_en.eq(signals[f"tx{p}_ready"]),
            signals[f"rx{p}_ready"].eq(take & (granted == p)),
        ]
        if broken:
            age = Signal(8)
            m.d.sync += age.eq(age + 1)
            m.d.comb += signals[f"tx{p}_data"].eq(queue.r_data[: config.bus_bits] ^ age)
            with m.If(queue.r_data[-1]):
                m.d.comb += signals[f"tx{p}_bytes"].eq(0)
    last = rx("last")[granted]
    m.d.comb += take.eq(rx("valid")[granted] & Cat(queue.w_rdy for queue in queues).all())
    with m.If(take):
        m.d.sync += [inside.eq(~last), first.eq(last)]
    with m.If(take & last | ~inside & ~take & ~rx("valid")[granted]):
        m.d.sync += granted.eq(Mux(granted == config.ports - 1, 0, granted + 1))
    m.d.comb += [
        signals["busy"].eq(inside | Cat(queue.level.any() for queue in queues).any()),
        signals["trace_valid"].eq(take & last),
        signals["trace_outcome"].eq(Mux(rx("error")[granted], 20, 0)),
        signals["trace_port"].eq(granted),
        signals["trace_job"].eq(signals["seed"]),
        signals["trace_member"].eq(signals["own_mac"]),
    ]
    with m.If(take & last):
        m.d.sync += signals["trace_seq"].eq(signals["trace_seq"] + 1)
    return rtlil.convert(m, name="switch", ports=list(signals.values()), emit_src=False)
