"""On-chip memory behind AXI4 with the latency of external memory, for the emulated board and for small ones."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2, exact_log2

from hw.interface.axi import Axi4, Burst, Response
from hw.stream.fifo import Fifo
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN

__all__ = ["OUTSTANDING", "OnChipRam"]

OUTSTANDING = 32
"""Bursts of each direction that are accepted before the first of them is done."""


class OnChipRam(wiring.Component):
    """`bytes` of memory in words of `data_bits`.

    Bursts must be of type INCR with beats of whole words; any other burst has the response SLVERR and writes nothing. A
    word beyond the end has the response DECERR and reads as 0. Reads are executed in order, and so are writes, and
    neither waits for the other: a read returns what was written if its address comes after the write's response.

    Latency: the first beat of a read comes `latency` cycles after its address was accepted, or after the bursts before
    it. One beat in each cycle and direction, also from burst to burst. The memory begins with zeros on FPGAs and in
    simulators other than Icarus Verilog.
    """

    def __init__(self, *, bytes: int, latency: int = 16, address_bits: int = 32, data_bits: int = 64, id_bits: int = 1):
        word = data_bits // 8
        if not (bytes >= 2 * word and bytes % word == 0 and bytes <= 1 << address_bits):
            raise ValueError(
                f"OnChipRam bytes must be a multiple of {word} from {2 * word} to 2^{address_bits}, not {bytes!r}"
            )
        if not 2 <= latency <= 256:
            raise ValueError(f"OnChipRam latency must be 2 to 256, not {latency!r}")
        self.data_bits, self.word_address_bits = data_bits, exact_log2(word)  # bits of an address within a word
        self.words, self.latency = bytes // word, latency
        super().__init__({"axi": In(Axi4(address_bits, data_bits=data_bits, id_bits=id_bits))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=self.data_bits, depth=self.words, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        self._write(m, memory.write_port(granularity=8))
        self._read(m, memory.read_port())
        return m

    def _queue(self, m, name, requests):
        """Build a queue of bursts. Return whether it holds one, the oldest burst, the address and the response of its
        present word, the input that moves on to its next word, and whether that word is the burst's last."""
        within = self.word_address_bits
        shape = data.StructLayout(
            {"id": requests.payload.id.shape(), "word": len(requests.payload.addr) - within, "len": 8, "good": 1}
        )
        m.submodules[name] = fifo = Fifo(shape, depth=OUTSTANDING, buffered=False)
        put, first, request = Signal(shape, name=f"{name}_put"), Signal(shape, name=f"{name}_first"), requests.payload
        steps, ends, beat = Signal(name=f"{name}_steps"), Signal(name=f"{name}_ends"), Signal(8, name=f"{name}_beat")
        m.d.comb += [
            put.id.eq(request.id),
            put.word.eq(request.addr[within:]),
            put.len.eq(request.len),
            put.good.eq((request.burst == Burst.INCR) & (request.size == within)),
            requests.ready.eq(fifo.i.ready),
            fifo.i.valid.eq(requests.valid),
            fifo.i.payload.eq(put),
            first.eq(fifo.o.payload),
            ends.eq(steps & (beat == first.len)),
            fifo.o.ready.eq(ends),
        ]
        with m.If(steps):
            m.d.sync += beat.eq(Mux(ends, 0, beat + 1))
        word = Signal(len(request.addr) - within, name=f"{name}_word")
        m.d.comb += word.eq(first.word + beat)
        response = Mux(~first.good, Response.SLVERR, Mux(word < self.words, Response.OKAY, Response.DECERR))
        return fifo.o.valid, first, word, response, steps, ends

    def _write(self, m, port):
        axi = self.axi
        burst_waits, first, word, response, steps, ends = self._queue(m, "writes", axi.aw)
        m.submodules.answers = answers = Fifo(axi.b.payload.shape(), depth=OUTSTANDING, buffered=False)
        worst_response, put = Signal(Response), Signal(axi.b.payload.shape(), name="answer")
        m.d.comb += [
            axi.w.ready.eq(burst_waits & answers.i.ready),
            steps.eq(axi.w.valid & axi.w.ready),
            port.addr.eq(word[: ceil_log2(self.words)]),
            port.data.eq(axi.w.payload.data),
            port.en.eq(Mux(steps & (response == Response.OKAY), axi.w.payload.strb, 0)),
            put.id.eq(first.id),
            put.resp.eq(worst_response | response),
            answers.i.payload.eq(put),
            answers.i.valid.eq(ends),
            axi.b.valid.eq(answers.o.valid),
            axi.b.payload.eq(answers.o.payload),
            answers.o.ready.eq(axi.b.ready),
        ]
        with m.If(steps):
            m.d.sync += worst_response.eq(Mux(ends, 0, worst_response | response))

    def _read(self, m, port):
        axi = self.axi
        _, first, word, response, steps, ends = self._queue(m, "reads", axi.ar)
        # The number of bursts that have waited long enough: bursts are in order, and all wait equally long.
        bursts_due, delay_line = Signal(range(OUTSTANDING + 1)), Signal(max(self.latency - 2, 1))
        becomes_due = Signal()
        m.d.comb += becomes_due.eq((delay_line << 1 | (axi.ar.valid & axi.ar.ready))[self.latency - 2])
        m.d.sync += [
            delay_line.eq(delay_line << 1 | (axi.ar.valid & axi.ar.ready)),
            bursts_due.eq(bursts_due + becomes_due - ends),
        ]
        # The memory port's register is the output register.
        advance, shown = Signal(), Signal(axi.r.payload.shape())
        m.d.comb += [
            advance.eq(~axi.r.valid | axi.r.ready),
            steps.eq(advance & (bursts_due != 0)),
            port.en.eq(steps),
            port.addr.eq(word[: ceil_log2(self.words)]),
            axi.r.payload.eq(shown),
            axi.r.payload.data.eq(Mux(shown.resp == Response.OKAY, port.data, 0)),
        ]
        with m.If(advance):
            m.d.sync += [axi.r.valid.eq(steps), shown.id.eq(first.id), shown.resp.eq(response), shown.last.eq(ends)]
        return m
