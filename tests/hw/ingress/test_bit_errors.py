# amaranth: UnusedElaboratable=no
"""Bit errors in the memories between a port and the core: they are found, and later frames keep their scans."""

import pytest
from amaranth.hdl import Module, Shape, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, connect, flipped

import hw.ingress.packet_queue
import hw.ingress.parser
import hw.stream.fifo
from hw.ingress.arbiter import Arbiter
from hw.interface.headers import Scan
from hw.stream.stored_word import StoredWord
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, from_words, pack, to_words
from sim.frames.client import SWITCH_IP, Client

BUS = 64
LAYOUT = StoredWord(BUS)
LAST = range(LAYOUT["last"].offset, LAYOUT["last"].offset + 3)
"""Bits of a stored word that are a copy of `last`."""
KIND_BITS = 3
SAMPLE = (0, 37, 63, 64, 67, *LAST, LAYOUT["mark"].offset)
CLIENT = Client.numbered(7)
HEADER_WORDS = 8


class Entrance(wiring.Component):
    """One port's queue, the arbiter and the parser. `memories` are those of the queue, of the scans, of the parser and
    of the parser's kinds of frames."""

    def __init__(self, monkeypatch, *, queue=hw.ingress.packet_queue, parser=hw.ingress.parser):
        self.memories = {}

        def recorded(name):
            def make(*arguments, **options):
                memory = Memory(*arguments, **options)
                self.memories["kinds" if memory.shape == unsigned(KIND_BITS) else name] = memory
                return memory

            return make

        monkeypatch.setattr(queue, "Memory", recorded("queue"))
        monkeypatch.setattr(parser, "Memory", recorded("parser"))
        monkeypatch.setattr(hw.stream.fifo, "Memory", recorded("scans"))
        self.queue = queue.PacketQueue(bus_bits=BUS, depth=256, frame_bytes_max=1518)
        self.parser = parser.Parser(bus_bits=BUS)
        super().__init__(
            {
                "i": self.queue.signature.members["i"],
                "own_ip": In(32),
                **{name: self.parser.signature.members[name] for name in ("headers", "o", "payload_only")},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue, m.submodules.parser = self.queue, self.parser
        m.submodules.arbiter = arbiter = Arbiter(ports=1, bus_bits=BUS, cycles_max=60)
        connect(m, flipped(self.i), self.queue.i)
        connect(m, self.queue.o, arbiter.frames[0])
        connect(m, self.queue.scans, arbiter.scans[0])
        connect(m, arbiter.o, self.parser.i)
        connect(m, self.parser.headers, flipped(self.headers))
        connect(m, self.parser.o, flipped(self.o))
        m.d.comb += [self.parser.own_ip.eq(self.own_ip), self.payload_only.eq(self.parser.payload_only)]
        return m


def frame_of(number: int) -> bytes:
    """A contribution of eleven words, the last of which is not full."""
    return CLIENT.contribution(number, bytes((number + 7 * k) % 256 for k in range(20)))


def passed(monkeypatch, memory: str, flips, *, kinds=None, **modules):
    """Send one frame for each of `flips`, a word and a bit of it in a memory while the frame waits there; for None,
    send an untouched frame. Yield the flip, the frame, and the headers and words that the parser shows. `kinds` gets
    `payload_only` of each word."""
    dut = Entrance(monkeypatch, **modules)
    bench, headers, words, found = Bench(dut), [], [], []

    async def collect(ctx):
        async for _, _, valid, ready, item in ctx.tick().sample(
            dut.headers.valid, dut.headers.ready, dut.headers.payload
        ):
            headers.extend([item] * (valid and ready))

    async def collect_words(ctx):
        async for _, _, valid, ready, item, kind in ctx.tick().sample(
            dut.o.valid, dut.o.ready, dut.o.payload, dut.payload_only
        ):
            words.extend([item] * (valid and ready))
            if kinds is not None and valid and ready:
                kinds.append(kind)

    async def testbench(ctx):
        ctx.set(dut.own_ip, int.from_bytes(SWITCH_IP, "little"))
        ctx.set(dut.headers.ready, 1)
        stored = 0
        for number, flip in enumerate(flips):
            frame, offered = frame_of(number), 0
            for word in to_words(frame, BUS):
                ctx.set(Value.cast(dut.i.payload), pack(dut.i.payload.shape(), word))
                ctx.set(dut.i.valid, 1)
                await ctx.tick()
                offered += 1
            ctx.set(dut.i.valid, 0)
            # All words wait in the queue until the scan is done, then in the parser's memory until `o` is ready.
            # Each scan waits for one cycle.
            rows = dut.memories[memory]
            word, bit = flip or (0, None)
            row = Value.cast(rows.data[(number if memory in ("scans", "kinds") else stored + word) % rows.depth])
            if memory in ("parser", "kinds"):
                await ctx.tick().repeat(20)
            if memory == "scans":
                ctx.set(row, 0)
                while not ctx.get(row):
                    await ctx.tick()
            if flip is not None:
                ctx.set(row, ctx.get(row) ^ 1 << bit)
            stored += offered
            await ctx.tick().repeat(25)
            ctx.set(dut.o.ready, 1)
            await ctx.tick().repeat(14)
            ctx.set(dut.o.ready, 0)
            found.append((flip, frame, list(headers), list(words)))
            headers.clear()
            words.clear()

    bench.process(collect)
    bench.process(collect_words)
    bench.drive(testbench)
    return found


def check(monkeypatch, memory: str, flips, **modules) -> None:
    # A frame without an error behind each one with an error: nothing may be left.
    for flip, frame, headers, words in passed(
        monkeypatch, memory, [one for error in flips for one in (error, None)], **modules
    ):
        assert len(headers) == 1 and [word.last for word in words] == [0] * 10 + [1], flip
        word, bit = flip or (None, None)
        lost = flip is not None and bit not in LAST
        corrupt = lost and memory == "queue" and word < HEADER_WORDS
        assert (headers[0].corrupt, headers[0].ours) == (corrupt, not corrupt), flip
        assert headers[0].arrival.scan.length == len(frame)
        assert [item.error for item in words] == [int(lost and k >= word) for k in range(11)], flip
        if not lost:
            assert from_words(words, BUS) == [frame], flip


@pytest.mark.parametrize("memory", ["queue", "parser"])
def test_every_bit_error_of_a_word_is_found_and_moves_no_frames_end(memory, monkeypatch):
    flips = [(9, bit) for bit in range(LAYOUT.size)]
    flips += [(word, bit) for word in (2, 7, 10) for bit in SAMPLE]
    check(monkeypatch, memory, flips)


def check_scans(monkeypatch, **modules) -> None:
    layout = Shape.cast(Scan).width
    flips = [(0, bit) for bit in (*range(0, layout, 7), layout - 1)]
    for flip, frame, headers, words in passed(
        monkeypatch, "scans", [one for error in flips for one in (error, None)], **modules
    ):
        corrupt = flip is not None
        assert [(item.corrupt, item.ours) for item in headers] == [(corrupt, not corrupt)], flip
        assert from_words(words, BUS) == [frame] and not any(word.error for word in words), flip


def test_a_bit_error_of_a_scan_is_found(monkeypatch):
    check_scans(monkeypatch)


def check_kinds(monkeypatch, **modules) -> None:
    kinds: list[int] = []
    flips = [(0, bit) for bit in range(KIND_BITS)]
    for flip, frame, _, words in passed(monkeypatch, "kinds", flips, kinds=kinds, **modules):
        assert from_words(words, BUS) == [frame], flip
    assert kinds == [1] * 11 * KIND_BITS


def test_a_bit_error_of_a_frames_kind_changes_nothing(monkeypatch):
    check_kinds(monkeypatch)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("stored_word(word, parity_of(word))", "stored_word(word, 0)"),
        ("majority(reader.data.last)", "reader.data.last[0]"),
        ("fifo.o.payload.as_value().xor()", "0"),
        ("fifo.i.payload.corrupt.eq(scanner.scan.as_value().xor())", "fifo.i.payload.corrupt.eq(0)"),
    ],
)
def test_a_mutant_of_the_queue_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.ingress.packet_queue, sound, wrong)
    with pytest.raises(AssertionError):
        check(monkeypatch, "queue", [(word, bit) for word in (2, 9) for bit in SAMPLE], queue=broken)
        check_scans(monkeypatch, queue=broken)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("(index != 0) & damaged | ", ""),
        ("(index != 0) & damaged", "damaged"),
        ("(parity_of(word) != word.parity)", "0"),
        ("item.ours.eq(ours & ~corrupt)", "item.ours.eq(ours)"),
        (" | word.meta.scan.corrupt", ""),
        ("majority(kinds.o.payload)", "kinds.o.payload[1]"),
        ("(shown.error & ~shown.last) | ", ""),
        ("shown.error & ~shown.last", "shown.error"),
        ("(parity_of(word) != stored.mark)", "0"),
        ("majority(stored.last)", "stored.last[2]"),
    ],
)
def test_a_mutant_of_the_parser_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.ingress.parser, sound, wrong)
    with pytest.raises(AssertionError):
        for memory in ("queue", "parser"):
            check(monkeypatch, memory, [(word, bit) for word in (2, 9) for bit in SAMPLE], parser=broken)
        check_scans(monkeypatch, parser=broken)
        check_kinds(monkeypatch, parser=broken)
