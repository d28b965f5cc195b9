"""A port's exit: order, addresses, checksums, drops. The addressed frames are checked by scapy."""

from itertools import pairwise

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

import hw.egress.output_port
from hw.egress.output_port import ORDINARY_SHARE, OutputPort
from hw.interface.forwarded import OWN_ARP_BYTES
from hw.interface.result import HEADER_LEAD, reserved_words
from iswitch.config import Config
from iswitch.golden.egress import compose
from iswitch.golden.interface.message import Source, SwitchAddress
from iswitch.wire import UDP_PORT, Format, Reason, ones_complement_sum
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary

PORT = 1
OWN = SwitchAddress(SWITCH_MAC, SWITCH_IP)
PAYLOAD_AT = 42
CLIENTS = [Client.numbered(k, port=port) for k, port in enumerate((1, 0, 1, 1))]
"""Members 0, 2 and 3 of job 0 are behind the port."""


def config(bus_bits=256):
    return Config(ports=3, bus_bits=bus_bits, members=4, jobs=2, window=2, elements=64, queue_bytes=4096)


def number(octets):
    return int.from_bytes(octets, "little")


def address(client):
    return {"mac": number(client.mac), "ip": number(client.ip), "udp": number(client.udp_port.to_bytes(2, "big"))}


def addressed(client, payload):
    return compose.frame(
        OWN, Source(client.port, client.mac, int.from_bytes(client.ip, "big"), client.udp_port), payload
    )


def result(seq, elements):
    """UDP payload of a result, not yet addressed."""
    return compose.result(
        job=0,
        epoch=7,
        seq=seq,
        format=1,
        flags=0,
        members=5,
        tainted=0,
        token=0xCAFEBABE,
        elements=np.arange(elements, dtype="<u4") * 0x01234567 + seq,
    )


def notice(seq):
    return compose.notice(job=0, epoch=7, seq=seq, member=1, token=9, reason=Reason.EPOCH)


def ack(seq):
    return compose.ack(job=0, epoch=7, seq=seq, member=1, token=9, nonce=seq)


class Exit:
    """The bench of one port. What is given with `put_...` arrives at `start` on the stream of its kind, and the header
    of a result `lead` cycles before the rest."""

    def __init__(self, bus_bits=256, *, start=0, stalls=0, bound=CLIENTS, component=OutputPort, lead=0):
        self.config, self.dut = config(bus_bits), component(config(bus_bits), port=PORT)
        dut, self.start = self.dut, start
        self.bench = Bench(dut, inputs=[(dut.own_mac, number(SWITCH_MAC)), (dut.own_ip, number(SWITCH_IP))])
        self.results, self.replies, self.forwarded, self.decided = [], [], [], []
        self.bindings = [
            {"job": 0, "member": k, "port": client.port, "address": address(client)} for k, client in enumerate(bound)
        ]
        self.stalls, self.lead, self.pauses = stalls, lead, {}

    def words(self, frame, **meta):
        return to_words(frame, self.config.bus_bits, first=True, meta=meta)

    def put_result(self, payload, recipients, job=0, bindings=1000):
        """A result, or a GRANT, whose header alone it is."""
        header = {"job": job, "recipients": recipients, "length": max(0, len(payload) - 22 - 4)}
        words = -(-(PAYLOAD_AT + len(payload)) // self.config.bus_bytes)
        self.pauses[len(self.results) + self.config.header_words] = self.lead
        room = words + (reserved_words(self.config) if header["length"] else 0)
        self.results += self.words(bytes(PAYLOAD_AT) + payload, room=room, header=header)
        self.decided += [bindings] * words

    def put_reply(self, payload, client, port=PORT):
        frame = addressed(client, payload)
        self.replies += self.words(frame, port=port, length=len(frame))

    def put_forwarded(self, frame, ports=1 << PORT, own_arp=0):
        self.forwarded += self.words(frame, ports=ports, room=len(frame) + (0 if own_arp else OWN_ARP_BYTES))

    def run(self, *, input_start=20, **options):
        dut, sources = self.dut, {}
        self.bench.source(dut.bind, self.bindings)

        async def count_bindings(ctx):
            count = 0
            async for _, _, valid in ctx.tick().sample(dut.bind.valid):
                count += valid
                ctx.set(dut.bindings, count)

        self.bench.process(count_bindings)
        for name in ("results", "replies", "forwarded"):
            beside = (lambda k: [(dut.decided, self.decided[k])]) if name == "results" else None
            sources[name] = self.bench.source(
                getattr(dut, name),
                getattr(self, name),
                start=input_start,
                beside=beside,
                pauses=self.pauses if name == "results" else {},
            )
        self.sink = self.bench.sink(dut.tx, start=self.start, stalls=self.stalls)
        self.sources = sources
        assert self.bench.run(read=[dut.busy], **options) == [0]
        frames = from_words(self.sink.items, self.config.bus_bits)
        return frames

    def drops(self):
        return [self.bench.strobes[f"stat_drop_{name}"] for name in ("grant", "reply", "ordinary")]


def assert_sound(frame):
    """scapy computes the same checksums, and the payload sums to zero."""
    packet = Ether(frame)
    sums = packet[IP].chksum, packet[UDP].chksum
    del packet[IP].chksum, packet[UDP].chksum
    again = Ether(bytes(packet))
    assert (again[IP].chksum, again[UDP].chksum) == sums
    assert bytes(again) == frame
    assert ones_complement_sum(frame[PAYLOAD_AT:]) == 0xFFFF


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_result_leaves_once_for_each_recipient_here_with_its_addresses(bus_bits, stalls):
    out = Exit(bus_bits, stalls=stalls)
    expected = []
    for seq, (elements, recipients) in enumerate(
        ((1, 0b1111), (13, 0b0100), (0, 0b1101), (14, 0b0010), (15, 0b1001), (0, 0b0010), (64, 0b1101))
    ):
        payload = result(seq, elements) if elements else compose.grant(job=0, epoch=7, base=seq, members=5, token=3)
        out.put_result(payload, recipients)
        expected += [addressed(CLIENTS[m], payload) for m in (0, 2, 3) if recipients >> m & 1]
    frames = out.run()
    assert frames == expected
    for frame in frames:
        assert_sound(frame)
    assert out.drops() == [0, 0, 0]


@pytest.mark.parametrize("format", [Format.FIXED64, Format.FP32])
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_an_uplink_leaves_for_the_parent(bus_bits, format):
    """The index behind the members' is the parent's; elements of 8 or 4 bytes, and a tail of 8."""
    parent = Client(b"\2PARNT", bytes([10, 0, 0, 1]), UDP_PORT, PORT, 0, 0)
    out, expected = Exit(bus_bits, bound=[*CLIENTS, parent]), []
    for elements in (1, 2, 7, 14):
        numbers = np.arange(elements, dtype="<i8" if format == Format.FIXED64 else "<u4")
        payload = compose.uplink(
            job=0,
            epoch=7,
            seq=elements,
            member=2,
            token=9,
            format=format,
            flags=1,
            behind=3,
            ranks=5,
            tainted=2,
            partial=True,
            elements=numbers,
        )
        out.put_result(payload, 1 << len(CLIENTS))
        out.results[-1]["meta"]["header"] |= {"length": 4 * elements, "up": 1, "numeric": format}
        expected.append(addressed(parent, payload))
    frames = out.run()
    assert frames == expected
    for frame in frames:
        assert_sound(frame)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_replies_and_ordinary_frames_leave_by_the_right_port(bus_bits, stalls):
    out = Exit(bus_bits, stalls=stalls)
    replies = [
        (notice(1), CLIENTS[1], PORT),
        (ack(2), CLIENTS[2], PORT),
        (notice(3), CLIENTS[0], 0),
        (ack(4), CLIENTS[3], PORT),
    ]
    forwarded = [
        (ordinary(b"\xff" * 6, b"\2" * 6, size), ports)
        for size, ports in ((60, 7), (65, 5), (61, 1 << PORT), (128, 1), (200, 6))
    ]
    for reply in replies:
        out.put_reply(*reply)
    for flood in forwarded:
        out.put_forwarded(*flood)
    frames = out.run()
    ours = [addressed(client, payload) for payload, client, port in replies if port == PORT]
    assert [frame for frame in frames if frame[12:14] == b"\x08\x00"] == ours
    assert [frame for frame in frames if frame[12:14] != b"\x08\x00"] == [
        frame for frame, ports in forwarded if ports >> PORT & 1
    ]
    for frame in ours:
        assert_sound(frame)
    assert out.drops() == [0, 0, 0]


@pytest.mark.parametrize("stalls", STALLS)
def test_results_and_replies_take_turns_before_ordinary_frames(stalls):
    out = Exit(start=100, stalls=stalls)
    for seq in range(2):
        out.put_result(result(seq, 20), 0b1001)
        out.put_forwarded(ordinary(b"\xff" * 6, b"\2" * 6, 70 + seq))
    for seq in range(5):
        out.put_reply(notice(seq), CLIENTS[2])
    frames = out.run(input_start=10)
    kinds = [
        "ordinary" if frame[12:14] != b"\x08\x00" else {1: "result", 4: "reply"}[frame[42] & 0xF] for frame in frames
    ]
    # The first frame is the first that was there. An ordinary one is sent after seven others that were chosen instead.
    queue = [kind for kind in kinds if kind != "ordinary"]
    share = [*queue[: ORDINARY_SHARE - 1], "ordinary", *queue[ORDINARY_SHARE - 1 :]]
    late = [*queue[:ORDINARY_SHARE], "ordinary", *queue[ORDINARY_SHARE:], "ordinary"]
    assert kinds in (["ordinary", *share], [*share, "ordinary"], late)
    assert all(a != b for a, b in pairwise(queue[:8]))
    assert queue.count("result") == 4
    assert queue.count("reply") == 5
    results = [frame for frame in frames if frame[12:14] == b"\x08\x00" and frame[42] & 0xF == 1]
    assert results == [addressed(CLIENTS[m], result(seq, 20)) for seq in range(2) for m in (0, 3)]


def test_member_that_joins_by_another_port_is_served_there():
    out = Exit()
    out.bindings += [
        {"job": 0, "member": 0, "port": 2, "address": address(CLIENTS[0])},
        {"job": 0, "member": 1, "port": PORT, "address": address(CLIENTS[3])},
        {"job": 1, "member": 2, "port": PORT, "address": address(CLIENTS[1])},
    ]
    out.put_result(result(1, 5), 0b0011)
    out.put_result(result(2, 5), 0b1111, job=1)
    assert out.run() == [addressed(CLIENTS[3], result(1, 5)), addressed(CLIENTS[1], result(2, 5))]


def rebound(component=OutputPort):
    """Bind member 2's index to another host while four results wait, of which the last was decided after that."""
    out, newcomer = Exit(component=component, start=200), Client.numbered(9, port=PORT)
    idle = {"job": 1, "member": 1, "port": 0, "address": address(newcomer)}
    out.bindings += [idle] * 60 + [{"job": 0, "member": 2, "port": PORT, "address": address(newcomer)}]
    out.put_result(result(0, 5), 0b0001, bindings=10)
    out.put_result(result(1, 5), 0b0100, bindings=10)
    out.put_result(result(2, 5), 0b1101, bindings=10)
    out.put_result(result(3, 5), 0b0100, bindings=65)
    return out.run(), out.bench.strobes["stat_expired"], newcomer


def test_result_is_never_sent_to_a_host_that_was_bound_after_the_decision():
    frames, expired, newcomer = rebound()
    assert frames == [
        addressed(CLIENTS[0], result(0, 5)),
        addressed(CLIENTS[0], result(2, 5)),
        addressed(CLIENTS[3], result(2, 5)),
        addressed(newcomer, result(3, 5)),
    ]
    assert expired == 2


@pytest.mark.mutant
def test_result_sent_to_a_later_host_is_noticed():
    broken = mutant(hw.egress.output_port, "with m.If(expired):", "with m.If(0):").OutputPort
    frames, _, newcomer = rebound(broken)
    assert addressed(newcomer, result(1, 5)) in frames


@pytest.mark.parametrize("held_back", [False, True])
def test_result_without_room_or_that_is_held_back_is_refused_and_not_stored(held_back):
    out = Exit(start=600)
    for seq in range(20):
        out.put_result(result(seq, 60), 0b1111)
    refused = []

    async def watch_refusals(ctx):
        ctx.set(out.dut.held_back, int(held_back))
        dut = out.dut
        async for _, _, begins, recipients in ctx.tick().sample(
            dut.results.valid & dut.results.payload.first, dut.refused
        ):
            if begins:
                refused.append(recipients)

    out.bench.process(watch_refusals)
    frames = out.run(limit=8000)
    stored = 0 if held_back else 12
    assert refused == [0] * stored + [0b1101] * (20 - stored)
    assert len(frames) == 3 * stored and out.drops() == [0, 0, 0]


def test_waiting_result_enters_while_others_are_held_back():
    out = Exit()
    out.put_result(result(1, 60), 0b0001)

    async def hold_back(ctx):
        ctx.set(out.dut.held_back, 1)
        ctx.set(out.dut.repeated, 1)

    out.bench.process(hold_back)
    assert out.run() == [addressed(CLIENTS[0], result(1, 60))]


def test_grant_has_room_in_a_queue_full_of_results():
    out = Exit(start=600)
    for seq in range(20):
        out.put_result(result(seq, 60), 0b0001)
    grant = compose.grant(job=0, epoch=7, base=5, members=5, token=3)
    for _ in range(4):
        out.put_result(grant, 0b0001)
    frames = out.run(limit=5000)
    assert frames.count(addressed(CLIENTS[0], grant)) == 4
    assert out.drops() == [0, 0, 0]


def test_arp_reply_has_room_in_a_queue_full_of_ordinary_frames():
    out = Exit(start=900)
    flood, own = ordinary(b"\xff" * 6, b"\2" * 6, 500), ordinary(b"\2" * 6, SWITCH_MAC, 60)
    for _ in range(20):
        out.put_forwarded(flood)
    for _ in range(4):
        out.put_forwarded(own, own_arp=1)
    frames = out.run(limit=5000)
    assert frames.count(own) == 4
    assert out.drops() == [0, 0, 24 - len(frames)]


def test_what_does_not_fit_is_dropped_whole_and_counted_by_kind():
    out = Exit(start=600)
    for seq in range(20):
        grant = compose.grant(job=0, epoch=7, base=seq, members=5, token=3)
        out.put_result(grant, 0b1000)  # 2 words of 128
        out.put_reply(ack(seq), CLIENTS[2])  # 4 words of 32
        out.put_forwarded(ordinary(b"\xff" * 6, b"\2" * 6, 500 + seq))  # 16 words of 128
    frames = out.run(limit=5000)
    kept = [
        [addressed(CLIENTS[3], compose.grant(job=0, epoch=7, base=seq, members=5, token=3)) for seq in range(20)],
        [addressed(CLIENTS[2], ack(seq)) for seq in range(20)],
        [ordinary(b"\xff" * 6, b"\2" * 6, 500 + seq) for seq in range(20)],
    ]
    counts = []
    for kind in kept:
        here = [frame for frame in frames if frame in kind]
        assert here == kind[: len(here)]
        counts.append(len(here))
    assert sum(counts) == len(frames)
    assert out.drops() == [20 - count for count in counts]
    assert counts == [16, 8, 7]


@pytest.mark.parametrize(("kind", "latency"), [("results", 7), ("replies", 5), ("forwarded", 5)])
def test_latency_from_first_word_to_first_word(kind, latency):
    out = Exit()
    out.put_result(result(0, 64), 0b0001)
    out.put_reply(ack(0), CLIENTS[0])
    out.put_forwarded(ordinary(b"\xff" * 6, b"\2" * 6, 100))
    for other in {"results", "replies", "forwarded"} - {kind}:
        getattr(out, other).clear()
    out.run()
    assert out.sink.times[0] == out.sources[kind].times[0] + latency
    assert out.sink.times == list(range(out.sink.times[0], out.sink.times[0] + len(out.sink.times)))


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_a_result_leaves_without_a_gap_and_no_later_however_far_its_header_leads(bus_bits):
    for lead in range(HEADER_LEAD + 1):
        out = Exit(bus_bits, lead=lead)
        out.put_result(result(0, 64), 0b0001)
        assert out.run() == [addressed(CLIENTS[0], result(0, 64))]
        entered, left = out.sources["results"].times, out.sink.times
        words = out.config.header_words
        assert entered[words] - entered[words - 1] == 1 + lead
        assert left == list(range(entered[0] + 7, entered[0] + 7 + len(left)))


def gaps(out, words):
    times = out.sink.times
    return {times[k] - times[k - 1] - 1 for k in range(words, len(times), words)}


def test_5_cycles_lie_before_a_result_and_1_before_another_frame():
    ours, replies, others = Exit(), Exit(), Exit()
    for seq in range(4):
        ours.put_result(result(seq, 64), 0b1101)
        replies.put_reply(ack(seq), CLIENTS[2])
        others.put_forwarded(ordinary(b"\xff" * 6, b"\2" * 6, 256))
    ours.run()
    assert gaps(ours, 11) == {5}
    replies.run()
    assert gaps(replies, 4) == {1}
    others.run()
    assert gaps(others, 8) == {1}


@pytest.mark.parametrize("lead", [0, HEADER_LEAD])
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_a_frame_that_has_begun_never_pauses(bus_bits, lead):
    """A MAC cannot wait in the middle of a frame: whenever `tx` is taken, the next word of the frame is there in the
    next cycle. All kinds at once, into stores that are empty, so that frames leave while they come. The header of a
    result may come `lead` cycles before the rest."""
    for stalls in STALLS:
        out = Exit(bus_bits, stalls=stalls, lead=lead)
        for seq in range(6):
            out.put_result(result(seq, 64 - 9 * seq), 0b1101)
            out.put_reply(ack(seq), CLIENTS[2])
            out.put_forwarded(ordinary(b"\xff" * 6, b"\2" * 6, 60 + 90 * seq))
        tx, pauses = out.dut.tx, []

        async def watch(ctx, tx=tx, pauses=pauses):
            within = False
            async for _, _, valid, ready, last in ctx.tick().sample(tx.valid, tx.ready, tx.payload.last):
                pauses.append(within and not valid)
                within = within and not valid or valid and not (ready and last)

        out.bench.process(watch)
        out.run()
        assert out.drops() == [0, 0, 0] and len(pauses) > 100 and not any(pauses)


@pytest.mark.parametrize("cycle", range(18, 32))
def test_a_member_bound_elsewhere_in_the_middle_of_a_result_leaves_whole_frames(cycle):
    """What is decided at a result's first word holds to its last: a port must neither wait for an end that never comes
    nor send an orphan."""
    leaving, coming = Exit(), Exit(bound=[CLIENTS[1], *CLIENTS[1:]])
    idle = {"job": 0, "member": 1, "port": 0, "address": address(CLIENTS[1])}
    for scene, port in ((leaving, 0), (coming, PORT)):
        moved = {"job": 0, "member": 0, "port": port, "address": address(CLIENTS[0])}
        scene.bindings += [idle] * (cycle - len(scene.bindings)) + [moved]
        scene.put_result(result(1, 60), recipients=1)
        scene.put_result(result(2, 60), recipients=4)
        frames = scene.run()
        assert 1 <= len(frames) <= 2
        for frame in frames:
            assert_sound(frame)
        assert frames[-1][6 + 40 :][:4] == result(2, 60)[4:8]
