"""The gate: each frame follows its verdict, and its operation goes first."""

import random

import pytest

from hw.decide.gate import Gate
from iswitch.config import Config
from iswitch.wire import Operation
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
    made += [({"frame": 1}, noise(size, 20 + size)) for size in (60, 64, 65, 300)]
    made += [
        ({"frame": 0, "works": 1, "work": {"operation": Operation.FORCE, "slot": k, "result": {"seq": 30 + k}}}, None)
        for k in range(4)
    ]
    random.Random(4).shuffle(made)
    return made


def run(bus_bits, made, stalls=0):
    dut = Gate(config(bus_bits))
    bench = Bench(dut, stalls=stalls)
    bench.source(dut.verdicts, [verdict for verdict, _ in made])
    words = bench.source(dut.words, [word for _, frame in made if frame for word in to_words(frame, bus_bits)])
    works, contributions, forwarded = bench.sink(dut.works), bench.sink(dut.contributions), bench.sink(dut.forwarded)
    bench.run()
    return words, works, contributions, forwarded


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_each_frame_goes_where_its_verdict_says(bus_bits, stalls):
    made = cases()
    _, works, contributions, forwarded = run(bus_bits, made, stalls)
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
    assert [(item.meta.ports, item.meta.length) for item in forwarded.items if item.last] == [
        (verdict["ports"], verdict["length"]) for verdict, _ in made if verdict.get("ports")
    ]


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


def test_no_latency_and_one_word_per_cycle():
    words, _, contributions, forwarded = run(
        256,
        [contribution(k, 64) for k in range(3)]
        + [({"frame": 1, "ports": 1, "length": 96}, noise(96, 3)), ({"frame": 1}, noise(96, 4))],
    )
    assert words.times == list(range(1, 1 + 3 * 4 + 6))
    assert contributions.times == [words.times[k] for k in (2, 3, 6, 7, 10, 11)]
    assert forwarded.times == words.times[12:15]
