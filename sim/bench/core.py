"""The protocol core alone: frames' headers go in, outcomes, verdicts and replies are compared with the golden model's.

The model is asked first, frame by frame, so that clients can learn from its answers; then the gateware is shown all of it at once.
"""

from typing import Any, NamedTuple

import numpy as np
from amaranth.lib import data

from hw.control.core import Core
from hw.control.tables import Address
from iswitch.config import Config
from iswitch.wire import (
    ACK, FRAME_BYTES, HEADER, NOTICE_INTERVAL_US, SILENCE_TICK_US, Operation, Outcome, Reason, ResultFlag, ones_complement_sum,
)
from sim.bench.client import SWITCH_IP, SWITCH_MAC
from sim.bench.stream import Bench, Sink, Source
from sim.model.aggregate.ring import Work
from sim.model.net import compose
from sim.model.parse import is_ours
from sim.model.switch import Frames
from sim.model.tree_switch import TreeSwitch

__all__ = ["CoreBench", "Done"]

ADDRESS_BYTES = FRAME_BYTES - HEADER.itemsize


def clock_us(frames: int) -> int:
    """The time after so many frames; it stands still while one is decided. Some notices are suppressed, and after a while members are
    silent."""
    return NOTICE_INTERVAL_US * 2 // 5 * frames + frames // 16 * SILENCE_TICK_US


def register(address: int) -> int:
    """What stands at an address, for the core that has no counters here."""
    return (address + 1) * 0x9E3779B1 % 2**32


class Done(NamedTuple):
    """An operation as the aggregator is told it."""

    operation: int
    slot: int
    first: int
    write: int
    emit: int
    seq: int
    members: int
    tainted: int
    flags: int
    length: int
    recipients: int


class Recorder(TreeSwitch):
    """The model, noting what it does on the way."""

    def __init__(self, config: Config, seed: int) -> None:
        super().__init__(config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=seed)
        self.fates: list[Outcome] = []
        self.works: list[Done] = []
        self.replies: list[tuple[int, bytes]] = []
        self.routes: list[set[int]] = []

    def receive(self, port: int, frame: bytes, now_us: int, error: bool = False) -> Frames:
        before = list(self.outcomes)
        sent = super().receive(port, frame, now_us, error)
        fates = [outcome for outcome in Outcome if self.outcomes[outcome] != before[outcome]]
        self.fates += fates
        self.routes += [{egress for egress, _ in sent} if fate in (Outcome.ORDINARY, Outcome.ANSWERED) else set() for fate in fates]
        return sent

    def perform(self, number: int, work: Work, payload: bytes = b"") -> Frames:
        job, slots = self.jobs[number], self.config.slots
        slot, resend = job.ring.slots[work.slot], work.operation == Operation.RESEND
        flags = (ResultFlag.PARTIAL * bool(slot.expected & ~slot.members) | ResultFlag.TAINTED * bool(slot.tainted)
                 | ResultFlag.RESENT * resend | ResultFlag.CHANGE * slot.change)
        first = work.first and not resend
        self.works.append(Done(
            work.operation, number * slots + work.slot, first,
            work.operation == Operation.CONTRIBUTE or (work.operation == Operation.FORCE and first), work.emit or resend,
            slot.seq, slot.members, slot.tainted, flags, slot.length, work.receivers))
        return super().perform(number, work, payload)

    def notice(self, message, reason: Reason, now_us: int) -> Frames:
        sent = super().notice(message, reason, now_us)
        self.replies += sent
        return sent

    def control(self, message, now_us: int) -> tuple[Outcome, Frames]:
        outcome, sent = super().control(message, now_us)
        self.replies.append(sent[0])
        return outcome, sent

    def registers(self, address: int) -> list[int]:
        return [register((address + k) % 2**32) for k in range(8)]


class CoreBench:
    """Ask with `exchange` as one asks a switch, then `check` the gateware."""

    def __init__(self, config: Config, *, seed: int = 1) -> None:
        self.config, self.seed = config, seed
        self.model = Recorder(config, seed)
        self.headers: list[dict[str, Any]] = []

    def exchange(self, port: int, frame: bytes, error: bool = False) -> list[bytes]:
        before = len(self.model.fates)
        sent = self.model.receive(port, frame, clock_us(before), error)
        if len(self.model.fates) != before:
            self.headers.append(self.seen(port, frame))
        return [answer for _, answer in sent]

    def seen(self, port: int, frame: bytes) -> dict[str, Any]:
        """The parser's item for a frame."""
        pseudo = frame[26:34] + b"\0\x11" + frame[38:40]
        elements = np.frombuffer(frame[FRAME_BYTES:].ljust(-(-len(frame) // 4) * 4 - FRAME_BYTES, b"\0"), "<u4")
        scan = {"length": len(frame), "ip_good": ones_complement_sum(frame[14:34]) == 0xFFFF,
                "udp_good": frame[40:42] == b"\0\0" or ones_complement_sum(pseudo + frame[34:]) == 0xFFFF,
                "exponent": int((elements >> 23 & 0xFF).max(initial=0))}
        return {"frame": int.from_bytes(frame[:64], "little"), "body": int.from_bytes(frame[64:128], "little"),
                "arrival": {"scan": scan, "port": port}, "ours": is_ours(frame, SWITCH_IP)}

    def check(self, *, stalls: float = 0) -> tuple[Source, Sink, Sink]:
        """Shows the gateware all that was exchanged and compares everything. Returns headers, verdicts, replies."""
        dut = Core(self.config)
        bench = Bench(dut, stalls=stalls, inputs=[
            (dut.seed, self.seed), (dut.own_mac, int.from_bytes(SWITCH_MAC, "little")), (dut.own_ip, int.from_bytes(SWITCH_IP, "little"))])
        source = bench.source(dut.headers, self.headers)
        verdicts, replies = bench.sink(dut.verdicts, holds=True), bench.sink(dut.replies, holds=True)
        fates: list[Outcome] = []

        async def record(ctx):
            async for _, _, decided, trace in ctx.tick().sample(dut.decided, dut.trace):
                if decided:
                    fates.append(Outcome(int(trace.outcome)))
                    ctx.set(dut.now_us, clock_us(len(fates)))

        async def registers(ctx):
            async for _, _, address in ctx.tick().sample(dut.read_address):
                ctx.set(dut.read_value, register(address))

        bench.process(record)
        bench.process(registers)
        bench.run(limit=100000)
        assert fates == self.model.fates
        assert [done(item.work) for item in verdicts.items if item.works] == self.model.works
        framed = [item for item in verdicts.items if item.frame]
        assert [{port for port in range(self.config.ports) if item.ports >> port & 1} for item in framed] == self.model.routes
        assert [bool(item.ports and item.answer.answers) for item in framed] == [fate == Outcome.ANSWERED for fate in fates]
        assert [item.length for item in framed] == [item["arrival"]["scan"]["length"] for item in self.headers]
        assert [self.addressed(item) for item in replies.items] == self.model.replies
        return source, verdicts, replies

    def addressed(self, reply: data.Const) -> tuple[int, bytes]:
        """A reply of the gateware as the frame that is sent."""
        header = reply.header.as_value().value.to_bytes(HEADER.itemsize, "little")
        body = reply.body.as_value().value.to_bytes(ACK.itemsize, "little") if reply.acknowledges else b""
        payload = compose.balanced(header + body, compose.COMPLEMENT_AT)
        octets = reply.address.as_value().value.to_bytes(data.Layout.cast(Address).size // 8, "little")
        source = compose.Source(reply.port, octets[:6], int.from_bytes(octets[6:10], "big"), int.from_bytes(octets[10:], "big"))
        return reply.port, compose.address(self.model.own, source, payload)


def done(work: data.Const) -> Done:
    result = work.result
    return Done(int(work.operation), work.slot, work.first, work.write, work.emit, result.seq, result.members, result.tainted,
                result.flags, result.length, result.recipients)
