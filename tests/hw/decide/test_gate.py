# amaranth: UnusedElaboratable=no
"""The gate: each frame follows its verdict, and its operation goes first."""

import random

import pytest

import hw.decide.gate
from hw.decide.gate import Gate
from iswitch.config import Config
from iswitch.wire import Operation
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words


def config(bus_bits):
    return Config(ports=3, bus_bits=bus_bits, members=4, jobs=2, window=2, elements=32, queue_bytes=4096)


def noise(size, seed):
    return random.Random(seed).randbytes(size)


def contribution(k, size, operation=Operation.CONTRIBUTE):
    include = operation == Operation.CONTRIBUTE
    work = {"operation": operation, "slot": k % 8, "include": include, "result": {"seq": k}}
    return {"frame": 1, "works": 1, "work": work}, noise(64 + size, k)


def cases():
    """(verdict, frame or None): everything that a verdict can say, in one random order."""
    made = [contribution(k, size) for k, size in enumerate((4, 60, 64, 68, 128))]
    made += [
        contribution(5, 64, Operation.FORCE),
        contribution(6, 0, Operation.RESEND),
        contribution(7, 65, Operation.RESEND),
    ]
    made += [
        ({"frame": 1, "ports": 1 + k, "length": size}, noise(size, 10 + k))
        for k, size in enumerate((60, 63, 64, 65, 200))
    ]
    # The switch's own replies: to a ping, and to an ARP request.
    made += [
        ({"frame": 1, "ports": 1, "length": 60, "host_reply": {"valid": 1, "is_arp": is_arp}}, noise(60, 40 + is_arp))
        for is_arp in (0, 1)
    ]
    made += [({"frame": 1}, noise(size, 20 + size)) for size in (60, 64, 65, 300)]
    made += [
        ({"frame": 0, "works": 1, "work": {"operation": Operation.FORCE, "slot": k, "result": {"seq": 30 + k}}}, None)
        for k in range(4)
    ]
    random.Random(4).shuffle(made)
    return made


def run(bus_bits, made, stalls=0, gate=Gate):
    """Of frames with an operation nothing but the payload is needed."""
    dut = gate(config(bus_bits))
    bench = Bench(dut, stalls=stalls)
    bench.source(dut.verdicts, [verdict for verdict, _ in made])
    pairs = [
        (word, bool(verdict.get("works"))) for verdict, frame in made if frame for word in to_words(frame, bus_bits)
    ]
    words = bench.source(
        dut.words, [word for word, _ in pairs], beside=lambda k: [(dut.payload_only, int(pairs[k][1]))]
    )
    works, contributions, forwarded = bench.sink(dut.works), bench.sink(dut.contributions), bench.sink(dut.forwarded)
    bench.run()
    return words, works, contributions, forwarded


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_each_frame_goes_where_its_verdict_says(bus_bits, stalls):
    check_places(bus_bits, stalls)


def check_places(bus_bits, stalls, gate=Gate):
    made = cases()
    _, works, contributions, forwarded = run(bus_bits, made, stalls, gate)
    worked = [verdict["work"] for verdict, _ in made if verdict.get("works")]
    assert [(item.operation, item.slot, item.result.seq) for item in works.items] == [
        (work["operation"], work["slot"], work["result"]["seq"]) for work in worked
    ]
    assert from_words(contributions.items, bus_bits) == [
        frame[64:]
        for verdict, frame in made
        if verdict.get("works") and frame and verdict["work"]["operation"] == Operation.CONTRIBUTE
    ]
    assert from_words(forwarded.items, bus_bits) == [frame for verdict, frame in made if verdict.get("ports")]
    assert [(item.meta.ports, item.meta.room) for item in forwarded.items if item.last] == [
        (verdict["ports"], verdict["length"] + (0 if is_own_arp(verdict) else 256))
        for verdict, _ in made
        if verdict.get("ports")
    ]


def is_own_arp(verdict) -> bool:
    return bool(verdict.get("host_reply", {}).get("is_arp"))


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", ["Mux(own_arp, OWN_ARP_BYTES, 0)", "0", "OWN_ARP_BYTES"])
def test_a_mutant_of_the_room_that_a_frame_needs_is_noticed(wrong):
    broken = mutant(hw.decide.gate, "Mux(own_arp, 0, OWN_ARP_BYTES)", wrong).Gate
    with pytest.raises(AssertionError):
        check_places(64, 0, broken)


@pytest.mark.parametrize("stalls", STALLS)
def test_operation_goes_before_its_payload(stalls):
    made = [contribution(k, 32) for k in range(20)]
    _, works, contributions, _ = run(256, made, stalls)
    assert len(works.times) == len(contributions.times) == 20
    assert all(work < word for work, word in zip(works.times, contributions.times, strict=True))


def test_frame_waits_while_its_operation_is_not_taken():
    dut = Gate(config(256))
    bench = Bench(dut)
    bench.source(dut.verdicts, [contribution(0, 64)[0]] * 2)
    bench.source(dut.words, to_words(noise(128, 1), 256) * 2)
    works, contributions = bench.sink(dut.works, start=50), bench.sink(dut.contributions)
    bench.run()
    assert works.times[0] == 50
    assert [taken > 50 for taken in contributions.times] == [True] * 4


def check_early_words(gate=Gate):
    """Frames of 64 bytes and more, the verdicts of which come late."""
    for size in (0, 1, 200):
        dut = gate(config(256))
        bench = Bench(dut, inputs=[(dut.payload_only, 1)])
        verdict, frame = contribution(0, size) if size else ({"frame": 1}, noise(64, 1))
        bench.source(dut.verdicts, [verdict], start=50)
        words, payload = bench.source(dut.words, to_words(frame, 256)), bench.sink(dut.contributions)
        bench.sink(dut.works)
        bench.run()
        assert [taken < 50 for taken in words.times] == [True, size > 0] + [False] * (len(words.times) - 2)
        assert from_words(payload.items, 256) == [frame[64:]] * (size > 0)


def test_header_words_of_a_frame_with_numbers_do_not_wait_for_the_verdict_but_for_a_frames_last_word():
    check_early_words()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.payload_only & (index", "(index"),
        ("(index != header_words) & ~ends):", "~ends):"),
        ("(index != header_words) & ~ends):", "(index != header_words)):"),
        ("self.payload_only & (index", "0 & (index"),
    ],
)
def test_a_mutant_of_early_words_is_noticed(sound, wrong):
    broken = mutant(hw.decide.gate, sound, wrong).Gate
    with pytest.raises((AssertionError, TimeoutError)):
        check_early_words(broken)
        check_places(256, 0.5, broken)


def test_no_latency_and_one_word_per_cycle():
    words, _, contributions, forwarded = run(
        256,
        [contribution(k, 64) for k in range(3)]
        + [({"frame": 1, "ports": 1, "length": 96}, noise(96, 3)), ({"frame": 1}, noise(96, 4))],
    )
    assert words.times == list(range(1, 1 + 3 * 4 + 6))
    assert contributions.times == [words.times[k] for k in (2, 3, 6, 7, 10, 11)]
    assert forwarded.times == words.times[12:15]
