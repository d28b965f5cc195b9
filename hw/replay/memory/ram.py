"""Memory on the chip behind AXI4, as slow to answer as memory beside it: that of the emulated board and of small
ones."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from hw.interface.axi import Axi4, Burst, Response
from hw.stream.fifo import Fifo
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN

__all__ = ["OnChipRam"]

OUTSTANDING = 8
"""Bursts of each kind that are taken before the first of them is done."""
WORD_BITS = 3
"""Of an address, within a word."""


class OnChipRam(wiring.Component):
    """`bytes` of memory in words of 64 bits, zeros at first. Bursts are those of type INCR whose beats are words; any
    other is answered SLVERR and writes nothing. A word beyond the end is answered DECERR, with zeros. Reads and writes
    are each carried out in order, and do not wait for each other; a read finds what was written if its address came
    behind the write's answer.

    One beat a cycle in each direction, also from burst to burst. The first beat that is read comes `latency` cycles
    after its address was taken, or when those before it are through. Initial zeros are the memory's own (FPGAs and
    simulators have them; Icarus Verilog does not).
    """

    def __init__(self, *, bytes: int, latency: int = 16, address_bits: int = 32, id_bits: int = 1):
        if not (bytes >= 16 and bytes % 8 == 0 and bytes <= 1 << address_bits):
            raise ValueError(f"OnChipRam bytes must be a multiple of 8 from 16 to 2^{address_bits}, not {bytes!r}")
        if not 2 <= latency <= 256:
            raise ValueError(f"OnChipRam latency must be 2 to 256, not {latency!r}")
        self.words, self.latency = bytes // 8, latency
        super().__init__({"axi": In(Axi4(address_bits, id_bits=id_bits))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=64, depth=self.words, init=[], attrs=NEVER_READ_BEFORE_WRITTEN)
        self._write(m, memory.write_port(granularity=8))
        self._read(m, memory.read_port())
        return m

    def _queue(self, m, name, requests):
        """Of bursts; the first in it, which ends when `ends`, and the word that it is at, which is another when it
        `steps`."""
        about = data.StructLayout(
            {"id": requests.payload.id.shape(), "word": len(requests.payload.addr) - WORD_BITS, "len": 8, "good": 1}
        )
        m.submodules[name] = fifo = Fifo(about, depth=OUTSTANDING, buffered=False)
        put, first, asked = Signal(about, name=f"{name}_put"), Signal(about, name=f"{name}_first"), requests.payload
        steps, ends, beat = Signal(name=f"{name}_steps"), Signal(name=f"{name}_ends"), Signal(8, name=f"{name}_beat")
        m.d.comb += [
            put.id.eq(asked.id),
            put.word.eq(asked.addr[WORD_BITS:]),
            put.len.eq(asked.len),
            put.good.eq((asked.burst == Burst.INCR) & (asked.size == WORD_BITS)),
            requests.ready.eq(fifo.i.ready),
            fifo.i.valid.eq(requests.valid),
            fifo.i.payload.eq(put),
            first.eq(fifo.o.payload),
            ends.eq(steps & (beat == first.len)),
            fifo.o.ready.eq(ends),
        ]
        with m.If(steps):
            m.d.sync += beat.eq(Mux(ends, 0, beat + 1))
        word = Signal(len(asked.addr) - WORD_BITS, name=f"{name}_word")
        m.d.comb += word.eq(first.word + beat)
        response = Mux(~first.good, Response.SLVERR, Mux(word < self.words, Response.OKAY, Response.DECERR))
        return fifo.o.valid, first, word, response, steps, ends

    def _write(self, m, port):
        axi = self.axi
        there, first, word, response, steps, ends = self._queue(m, "writes", axi.aw)
        m.submodules.answers = answers = Fifo(axi.b.payload.shape(), depth=OUTSTANDING, buffered=False)
        worst, put = Signal(Response), Signal(axi.b.payload.shape(), name="answer")
        m.d.comb += [
            axi.w.ready.eq(there & answers.i.ready),
            steps.eq(axi.w.valid & axi.w.ready),
            port.addr.eq(word[: ceil_log2(self.words)]),
            port.data.eq(axi.w.payload.data),
            port.en.eq(Mux(steps & (response == Response.OKAY), axi.w.payload.strb, 0)),
            put.id.eq(first.id),
            put.resp.eq(worst | response),
            answers.i.payload.eq(put),
            answers.i.valid.eq(ends),
            axi.b.valid.eq(answers.o.valid),
            axi.b.payload.eq(answers.o.payload),
            answers.o.ready.eq(axi.b.ready),
        ]
        with m.If(steps):
            m.d.sync += worst.eq(Mux(ends, 0, worst | response))

    def _read(self, m, port):
        axi = self.axi
        _, first, word, response, steps, ends = self._queue(m, "reads", axi.ar)
        # How many have waited long enough: bursts are in order, and all wait equally long.
        ripe, waits = Signal(range(OUTSTANDING + 1)), Signal(max(self.latency - 2, 1))
        ripens = Signal()
        m.d.comb += ripens.eq((waits << 1 | (axi.ar.valid & axi.ar.ready))[self.latency - 2])
        m.d.sync += [waits.eq(waits << 1 | (axi.ar.valid & axi.ar.ready)), ripe.eq(ripe + ripens - ends)]
        # The port's register is the output register.
        moves, shown = Signal(), Signal(axi.r.payload.shape())
        m.d.comb += [
            moves.eq(~axi.r.valid | axi.r.ready),
            steps.eq(moves & (ripe != 0)),
            port.en.eq(steps),
            port.addr.eq(word[: ceil_log2(self.words)]),
            axi.r.payload.eq(shown),
            axi.r.payload.data.eq(Mux(shown.resp == Response.OKAY, port.data, 0)),
        ]
        with m.If(moves):
            m.d.sync += [axi.r.valid.eq(steps), shown.id.eq(first.id), shown.resp.eq(response), shown.last.eq(ends)]
        return m
