"""The protocol core alone: headers of frames go in; outcomes, verdicts and replies are compared with the golden
model's.

The model answers first, frame by frame, so that clients can learn from its answers. Then the gateware gets the whole
sequence at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from amaranth.hdl import Cat, Mux, Value
from amaranth.lib import data

from hw.decide.core import Core
from hw.interface.address import Address
from hw.interface.address import Parent as PARENT
from hw.interface.verdict import Verdict
from iswitch.config import Config
from iswitch.golden.decide import tree
from iswitch.golden.decide.claims import Answer
from iswitch.golden.decide.job import Jobs
from iswitch.golden.decide.slot import Contributors, Work
from iswitch.golden.egress import compose
from iswitch.golden.ingress.parse import is_ours
from iswitch.golden.interface.message import Datagram
from iswitch.golden.interface.message import Source as Sender
from iswitch.golden.switch import Frames
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.wire import (
    ACK,
    FRAME_BYTES,
    HEADER,
    NOTICE_INTERVAL_US,
    SILENCE_TICK_US,
    ContributionFlag,
    Format,
    Operation,
    Outcome,
    Reason,
    ResultFlag,
    SlotState,
    Type,
    ones_complement_sum,
)
from sim.bench.stream import Bench, Sink, Source, pack
from sim.frames.client import SWITCH_IP, SWITCH_MAC

__all__ = ["CoreBench", "Done"]


def clock_us(frames: int) -> int:
    """Return the time at which a frame comes. Some notices are suppressed, and after a while members are silent."""
    return NOTICE_INTERVAL_US * 2 // 5 * frames + frames // 16 * SILENCE_TICK_US


def register(address: int) -> int:
    """Return the content of a register, for the core, which has no counters here."""
    return (address + 1) * 0x9E3779B1 % 2**32


class Done(NamedTuple):
    """An operation as the aggregator receives it; a GRANT has no slot. `up` has an uplink's further fields: member,
    behind, partial."""

    operation: int
    job: int
    epoch: int
    token: int
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
    numeric: int
    up: tuple[int, ...] | None


class Recorder(TreeSwitch):
    """The model, with a record of its operations."""

    def __init__(
        self,
        config: Config,
        *,
        mac: bytes,
        ip: bytes,
        seed: int,
        operator_key: int = 0,
        parents: dict[int, Parent] | None = None,
    ) -> None:
        super().__init__(config, mac=mac, ip=ip, seed=seed, operator_key=operator_key, parents=parents)
        self.fates: list[Outcome] = []
        self.works: list[Done] = []
        self.replies: Frames = []
        self.routes: list[set[int]] = []

    def framed(self, sent: list[Datagram]) -> Frames:
        """Return datagrams as the frames that leave."""
        return [(to.port, compose.frame(self.own, to, payload)) for to, payload in sent]

    def receive(self, port: int, frame: bytes, now_us: int, error: bool = False, *, overflow: bool = False) -> Frames:
        before = list(self.outcomes)
        sent = super().receive(port, frame, now_us, error, overflow=overflow)
        fates = [outcome for outcome in Outcome if self.outcomes[outcome] != before[outcome]]
        self.fates += fates
        self.routes += [
            {egress for egress, _ in sent} if fate in (Outcome.ORDINARY, Outcome.ANSWERED) else set() for fate in fates
        ]
        return sent

    def execute(self, number: int, work: Work, payload: bytes = b"") -> list[Datagram]:
        job, slots = self.jobs[number], self.config.slots
        slot, resend = job.ring.slots[work.slot], work.operation == Operation.RESEND
        again, leaf = work.operation == Operation.SEND_UP, number in self.parents
        names = (
            tree.contributors(job.ring, work.slot)
            if self.config.uplinks and not job.claims
            else Contributors(slot.members, slot.tainted)
        )
        partial = (
            names.partial or bool(slot.expected & ~slot.members) and not (leaf and slot.state == SlotState.COMPLETE)
        )
        flags = (
            ResultFlag.PARTIAL * partial
            | ResultFlag.TAINTED * bool(names.tainted)
            | ResultFlag.RESENT * resend
            | ResultFlag.MEMBERS_CHANGED * slot.members_changed
        )
        receivers, numeric, up, token = work.receivers, slot.format, None, job.token
        if leaf and slot.state == SlotState.SENT_UP:
            above = self.above[number]
            flags = (
                ContributionFlag.RETRANSMISSION * again
                | ContributionFlag.BOUNDARY * slot.boundary
                | ContributionFlag.REQUIRES_ALL * slot.requires_all
            )
            numeric = Format.FIXED64 if slot.format == Format.WINDOW64 else slot.format
            receivers, token = 1 << self.config.members, above.token
            up = above.member, (slot.seq - tree.lowest_acknowledged(job.ring)) % 2**16, int(partial)
        first = work.first and not resend and not again
        self.works.append(
            Done(
                work.operation,
                number,
                job.epoch,
                token,
                number * slots + work.slot,
                first,
                work.operation in (Operation.CONTRIBUTE, Operation.INSTALL_DOWN)
                or (work.operation == Operation.FORCE and first),
                work.emit or resend,
                slot.seq,
                names.ranks,
                names.tainted,
                flags,
                slot.length,
                receivers,
                numeric,
                up,
            )
        )
        return super().execute(number, work, payload)

    def answer_claim(self, message, answer: Answer) -> list[Datagram]:
        sent = super().answer_claim(message, answer)
        if answer.type == Type.GRANT:
            number = message.job
            job = self.jobs[number]
            self.works.append(
                Done(
                    Operation.GRANT,
                    number,
                    job.epoch,
                    job.token,
                    0,
                    0,
                    0,
                    1,
                    answer.seq,
                    answer.members,
                    0,
                    0,
                    0,
                    answer.receivers,
                    0,
                    None,
                )
            )
        else:
            self.replies += self.framed(sent)
        return sent

    def send_notice(self, message, reason: Reason, now_us: int, collective: int = 0) -> list[Datagram]:
        sent = super().send_notice(message, reason, now_us, collective)
        self.replies += self.framed(sent)
        return sent

    def handle_control(self, message, now_us: int) -> tuple[Outcome, list[Datagram]]:
        outcome, sent = super().handle_control(message, now_us)
        self.replies += self.framed([each for each in sent if each.payload[0] & 0xF in (Type.ACK, Type.CONTROL)])
        return outcome, sent

    def handle_parent_ack(self, message) -> tuple[Outcome, list[Datagram]]:
        outcome, sent = super().handle_parent_ack(message)
        self.replies += self.framed(sent)
        return outcome, sent

    def handle_parent_notice(self, message) -> tuple[Outcome, list[Datagram]]:
        outcome, sent = super().handle_parent_notice(message)
        self.replies += self.framed(sent)
        return outcome, sent

    def extra_datagrams(self, message, step) -> list[Datagram]:
        sent = super().extra_datagrams(message, step)
        self.replies += self.framed(sent)
        return sent

    def counter_registers(self, address: int) -> list[int]:
        return [register((address + k) % 2**32) for k in range(8)]


class CoreBench:
    """Call `exchange` as with a switch, then `check` the gateware."""

    def __init__(
        self,
        config: Config,
        *,
        mac: bytes = SWITCH_MAC,
        ip: bytes = SWITCH_IP,
        seed: int = 1,
        operator_key: int = 0,
        parents: dict[int, Parent] | None = None,
    ) -> None:
        self.config, self.seed = config, seed
        self.model = Recorder(config, mac=mac, ip=ip, seed=seed, operator_key=operator_key, parents=parents)
        self.headers: list[dict[str, Any]] = []

    @property
    def jobs(self) -> Jobs:
        """The model's jobs."""
        return self.model.jobs

    def exchange(self, port: int, frame: bytes, error: bool = False) -> list[bytes]:
        return [answer for _, answer in self.receive(port, frame, error=error)]

    def receive(self, port: int, frame: bytes, now_us: int = 0, error: bool = False) -> Frames:
        """Implements a golden switch's `receive`, with the time of the bench."""
        before = len(self.model.fates)
        sent = self.model.receive(port, frame, clock_us(before), error)
        if len(self.model.fates) != before:
            self.headers.append(self.seen(port, frame))
        return sent

    def seen(self, port: int, frame: bytes) -> dict[str, Any]:
        """Return the parser's item for a frame."""
        pseudo = frame[26:34] + b"\0\x11" + frame[38:40]
        elements = np.frombuffer(frame[FRAME_BYTES:].ljust(-(-len(frame) // 4) * 4 - FRAME_BYTES, b"\0"), "<u4")
        scan = {
            "length": len(frame),
            "ip_good": ones_complement_sum(frame[14:34]) == 0xFFFF,
            "udp_good": frame[40:42] == b"\0\0" or ones_complement_sum(pseudo + frame[34:]) == 0xFFFF,
            "exponent": int((elements >> 23 & 0xFF).max(initial=0)),
            "ranks": int.from_bytes(frame[-12:-8], "little"),
            "tainted": int.from_bytes(frame[-8:-4], "little"),
            "identity": int.from_bytes(frame[-4:-2], "little"),
            "partial": frame[-4] & 1,
        }
        return {
            "frame": int.from_bytes(frame[:64], "little"),
            "body": int.from_bytes(frame[64:128], "little"),
            "arrival": {"scan": scan, "port": port},
            "ours": is_ours(frame, self.model.own.ip),
        }

    def check(
        self, *, stalls: float = 0, wait: int = 0, core: Callable[[Config], Core] = Core
    ) -> tuple[Source, Sink, Sink]:
        """Give the gateware all exchanged frames and compare everything. Each verdict waits for `wait` cycles. Returns
        headers, verdicts, replies."""
        dut, own = core(self.config), self.model.own
        verdict = dut.verdicts.payload
        beside = [Value.cast(verdict[name]) for name, _ in Verdict(self.config) if name != "work"]
        parents = [
            (
                Value.cast(dut.parents[job]),
                pack(
                    PARENT,
                    {
                        "mac": int.from_bytes(parent.mac, "little"),
                        "ip": int.from_bytes(parent.ip, "little"),
                        "ranks": parent.ranks,
                        "port": parent.port,
                        "valid": 1,
                    },
                ),
            )
            for job, parent in self.model.parents.items()
        ]
        bench = Bench(
            dut,
            stalls=stalls,
            inputs=[
                (dut.seed, self.seed),
                (dut.operator_key, self.model.operator_key),
                (dut.own_mac, int.from_bytes(own.mac, "little")),
                (dut.own_ip, int.from_bytes(own.ip, "little")),
                *parents,
            ],
            held={"verdicts": Cat(*beside, Mux(verdict.works, Value.cast(verdict.work), 0))},
        )
        source = bench.source(dut.headers, self.headers, beside=lambda k: [(dut.now_us, clock_us(k))])
        verdicts, replies = bench.sink(dut.verdicts, holds=True, wait=wait), bench.sink(dut.replies, holds=True)
        fates: list[Outcome] = []
        ages = [0] * len(self.model.ages)

        async def record(ctx):
            async for _, _, decided, trace, claimed, age in ctx.tick().sample(
                dut.decided, dut.trace, dut.claimed, dut.age
            ):
                ages[age] += claimed
                if decided:
                    fates.append(Outcome(int(trace.outcome)))

        async def registers(ctx):
            async for _, _, address in ctx.tick().sample(dut.read_address):
                ctx.set(dut.read_value, register(address))

        bench.process(record)
        bench.process(registers)
        bench.run(limit=100000)
        assert fates == self.model.fates
        assert ages == self.model.ages
        assert [done(item.work) for item in verdicts.items if item.works] == self.model.works
        framed = [item for item in verdicts.items if item.frame]
        assert [
            {port for port in range(self.config.ports) if item.ports >> port & 1} for item in framed
        ] == self.model.routes
        assert [bool(item.ports and item.host_reply.valid) for item in framed] == [
            fate == Outcome.ANSWERED for fate in fates
        ]
        assert [item.length for item in framed] == [item["arrival"]["scan"]["length"] for item in self.headers]
        assert [self.addressed(item) for item in replies.items] == self.model.replies
        return source, verdicts, replies

    def addressed(self, reply: data.Const) -> tuple[int, bytes]:
        """Return a reply of the gateware as the frame that is sent."""
        header = reply.header.as_value().value.to_bytes(HEADER.itemsize, "little")
        body = reply.body.as_value().value.to_bytes(ACK.itemsize, "little") if reply.acknowledges else b""
        payload = compose.with_complement(
            header + body, compose.RECEIPT_COMPLEMENT_AT if reply.receipt else compose.COMPLEMENT_AT
        )
        octets = reply.address.as_value().value.to_bytes(data.Layout.cast(Address).size // 8, "little")
        source = Sender(reply.port, octets[:6], int.from_bytes(octets[6:10], "big"), int.from_bytes(octets[10:], "big"))
        return reply.port, compose.frame(self.model.own, source, payload)


def done(work: data.Const) -> Done:
    result = work.result
    slot = 0 if work.operation == Operation.GRANT else work.slot
    return Done(
        int(work.operation),
        result.job,
        result.epoch,
        result.token,
        slot,
        work.first,
        work.write,
        work.emit,
        result.seq,
        result.members,
        result.tainted,
        result.flags,
        result.length,
        result.recipients,
        result.numeric,
        (result.member, result.behind, result.partial) if "up" in result.shape().members and result.up else None,
    )
