"""The queues of packets: complete packets in order, and nothing of a packet that was dropped.

Each proof follows one word that the solver chooses among all words that enter. The word is known by the number of its
packet and its number in the packet, so packets can be neither lost nor repeated, and no word can be in a wrong place.
"""

import functools
from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value

import hw.ingress.packet_queue
import hw.stream.bypass_fifo
import hw.stream.cut_through_queue
import hw.stream.store_and_forward
from sim.prove.harness import Harness
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

COUNT_BITS = 4
"""Of packets, and of words in a packet: more than a trace can hold."""
META = 3


class FollowedWord:
    """One word of one packet, chosen by the solver, from the entry to the exit of a queue.

    Parameters
    ----------
    h : Harness
        Where registers and properties go.
    enters : Value
        A word enters.
    word : Value
        That word.
    last : Value
        The word is the last of its packet.
    kept : Value
        With the last word: the queue keeps the packet. Otherwise the packet must leave no trace.
    """

    def __init__(self, h: Harness, *, enters, word, last, kept):
        self.h = h
        self.packet, self.index = h.constant(COUNT_BITS, "packet"), h.constant(COUNT_BITS, "index")
        self.value = Signal(len(Value.cast(word)), reset_less=True)
        self.entered, self.left = Signal(COUNT_BITS), Signal(COUNT_BITS)
        self._seen, self._at, self._out = Signal(), Signal(COUNT_BITS), Signal(COUNT_BITS)
        with h.m.If(enters):
            h.m.d.sync += self._at.eq(self._at + 1)
            with h.m.If((self.entered == self.packet) & (self._at == self.index)):
                h.m.d.sync += [self.value.eq(word), self._seen.eq(1)]
            with h.m.If(last):
                h.m.d.sync += self._at.eq(0)
                with h.m.If(kept):
                    h.m.d.sync += self.entered.eq(self.entered + 1)
                with h.m.Elif(self.entered == self.packet):
                    h.m.d.sync += self._seen.eq(0)

    def require_at_exit(self, *, shown, word, leaves, last, repeat=0) -> None:
        """Require that a word that is shown is the followed one, if it has its place.

        Parameters
        ----------
        shown : Value
            A word is shown.
        word : Value
            That word.
        leaves : Value
            The word is taken.
        last : Value
            The word is the last of its packet.
        repeat : Value
            With the last word: the packet is shown once more.
        """
        h, here = self.h, Signal(name="here")
        h.m.d.comb += here.eq(shown & (self.left == self.packet) & (self._out == self.index))
        with h.m.If(leaves):
            h.m.d.sync += self._out.eq(self._out + 1)
            with h.m.If(last):
                h.m.d.sync += self._out.eq(0)
                with h.m.If(~Value.cast(repeat)):
                    h.m.d.sync += self.left.eq(self.left + 1)
        h.require(~here | (self._seen & (Value.cast(word) == self.value)))
        h.reach(here & (self.packet == 1) & (self.index == 1))


def stored_packets_leave(part: Any) -> Harness:
    """Follow a word of a packet through a store-and-forward queue."""
    h = Harness(dut := part.StoreAndForward(bus_bits=64, depth=4, meta=META, packets=2))
    h.free_inputs()
    i, o = dut.i, dut.o
    h.assume(h.holds(i))
    first = Signal(init=1)
    with h.m.If(h.taken(i)):
        h.m.d.sync += first.eq(i.payload.last)
    h.assume(~(i.valid & first & i.payload.last))
    followed = FollowedWord(h, enters=h.taken(i), word=seen(i.payload), last=i.payload.last, kept=1)
    followed.require_at_exit(shown=o.valid, word=seen(o.payload), leaves=h.taken(o), last=o.payload.last)
    h.require(h.holds(o))
    # Only complete packets are shown.
    h.require(~o.valid | (followed.entered != followed.left))
    return h


def accepted_packets_leave(part: Any, *, bypass: bool = False) -> Harness:
    """Follow a word of a packet through a queue that drops what has no room, and repeats what it is told to."""
    h = Harness(dut := part.CutThroughQueue(bus_bits=64, depth=4, meta=META, packets=2, bypass=bypass))
    h.free_inputs()
    i, o = dut.i, dut.o
    first, dropped, words, length = Signal(init=1), Signal(), Signal(4), Signal(4)
    with h.m.If(i.valid):
        h.m.d.sync += [first.eq(i.payload.last), words.eq(words + 1)]
        with h.m.If(first):
            h.m.d.sync += [dropped.eq(dut.stat_drop), words.eq(1), length.eq((dut.length + 7) >> 3)]
    at, need = Signal(4), Signal(4)
    h.m.d.comb += [at.eq(Mux(first, 0, words)), need.eq(Mux(first, (dut.length + 7) >> 3, length))]
    h.assume(i.payload.first == first)
    h.assume((dut.length > 0) & (dut.length <= 32))
    h.assume(~i.valid | (i.payload.last == (at + 1 == need)))
    accepted = Mux(first, ~dut.stat_drop, ~dropped)
    followed = FollowedWord(h, enters=i.valid & accepted, word=seen(i.payload), last=i.payload.last, kept=1)
    followed.require_at_exit(
        shown=o.valid, word=seen(o.payload), leaves=h.taken(o), last=o.payload.last, repeat=dut.repeat
    )
    h.require(h.holds(o))
    h.reach(dut.stat_drop & (followed.entered == 1))
    return h


def items_leave_in_order(part: Any) -> Harness:
    """Follow an item through the FIFO with a bypass. The items' last bit divides them into packets, to number them."""
    h = Harness(dut := part.BypassFifo(4, depth=3))
    h.free_inputs()
    i, o = dut.i, dut.o
    h.assume(h.holds(i))
    followed = FollowedWord(h, enters=h.taken(i), word=i.payload, last=i.payload[3], kept=1)
    # An item may leave in the cycle in which it enters, so the exit is looked at a cycle later.
    shown, leaves, word = Signal(), Signal(), Signal(4, reset_less=True)
    h.m.d.sync += [shown.eq(o.valid), leaves.eq(h.taken(o)), word.eq(o.payload)]
    followed.require_at_exit(shown=shown, word=word, leaves=leaves, last=word[3])
    return h


def committed_frames_leave(part: Any) -> Harness:
    """Follow a word of a frame through the ingress queue, which drops frames with `error` and those that are too
    short or too long."""
    h = Harness(dut := part.PacketQueue(bus_bits=64, depth=16, frame_bytes_max=72, scans_depth=16))
    h.free_inputs()
    i, o, scans = dut.i, dut.o, dut.scans
    h.assume(h.holds(i))
    h.assume(Mux(i.payload.last, i.payload.count <= 8, i.payload.count == 8))
    length, total = Signal(8), Signal(8)
    h.m.d.comb += total.eq(length + i.payload.count)
    with h.m.If(h.taken(i)):
        h.m.d.sync += length.eq(Mux(i.payload.last, 0, Mux(total < 128, total, 128)))
    kept = ~i.payload.error & (total >= part.FRAME_BYTES_MIN) & (total <= 72)
    followed = FollowedWord(h, enters=h.taken(i), word=seen(i.payload), last=i.payload.last, kept=kept)
    followed.require_at_exit(shown=o.valid, word=seen(o.payload), leaves=h.taken(o), last=o.payload.last)
    h.require(h.holds(o))
    h.require(h.holds(scans))
    # A frame that is shown has its scan, and each frame has one.
    scanned = Signal(COUNT_BITS)
    h.m.d.sync += scanned.eq(scanned + h.taken(scans))
    h.require(~o.valid | (scanned > followed.left) | scans.valid)
    h.require(~scans.valid | (scanned < followed.entered))
    return h


def seen(word) -> Value:
    """Return the part of a word that the proofs follow: of the data, the first and the last bit."""
    return Cat(word.data[0], word.data[-1], word.count, word.last)


PROOFS = [
    Proof(
        law="complete packets leave the store-and-forward queue in order, each word once and unchanged",
        part=hw.stream.store_and_forward,
        harness=stored_packets_leave,
        depth=14,
        mutants=(
            ("words.o.valid & (complete != 0)", "words.o.valid"),
            ("words.i.ready & (~first | metas.i.ready)", "words.i.ready"),
            ("complete + enters - leaves", "complete + enters"),
        ),
    ),
    Proof(
        law="a packet that the cut-through queue accepts leaves complete and in order, and of others no word leaves",
        part=hw.stream.cut_through_queue,
        harness=accepted_packets_leave,
        depth=14,
        mutants=(
            ("(first & fits | ~first & ~dropping)", "(first & fits | ~first)"),
            ("Mux(stores, room_used, room_kept)", "room_kept"),
            ("start.eq(read - filled)", "start.eq(read)"),
            ("read.eq(start), filled.eq(0), held.eq(0)", "read.eq(start), held.eq(0)"),
        ),
    ),
    Proof(
        law="items leave the FIFO with a bypass in order, each once and unchanged",
        part=hw.stream.bypass_fifo,
        harness=items_leave_in_order,
        depth=12,
        mutants=(
            ("memory.o.ready.eq(~held & self.o.ready)", "memory.o.ready.eq(self.o.ready)"),
            ("~(empty & free)", "~(empty & ~held)"),
            ("held.eq(empty & self.i.valid)", "held.eq(self.i.valid)"),
        ),
    ),
    Proof(
        law="a packet that the queue with a bypass accepts leaves complete and in order, and of others no word leaves",
        part=hw.stream.cut_through_queue,
        harness=functools.partial(accepted_packets_leave, bypass=True),
        depth=14,
        mutants=(
            ("alone | stores & empty", "alone | self.i.valid & empty"),
            ("alone | stores & empty", "alone | stores"),
            ("Mux(empty, free & stores, reads)", "~empty & reads"),
            ("held.eq(0), alone.eq(0)", "held.eq(0)"),
        ),
    ),
    Proof(
        law="frames that end well leave the ingress queue in order and with a scan each, and of others no word leaves",
        part=hw.ingress.packet_queue,
        harness=committed_frames_leave,
        depth=28,
        mutants=(
            ("Mux(first, start, write)", "write"),
            ("reader.en.eq(moves & (read != committed))", "reader.en.eq(moves & (read != write))"),
            ("level < self.depth - 1", "level < self.depth + 1"),
        ),
    ),
]
