"""One direction of a cable: when frames come out, in which order, and which do not. The oracle is arithmetic on
bits."""

from fractions import Fraction

import pytest

from sim.emulator.faults import PS_PER_US, Faults, Passed, Rates
from sim.emulator.wire import Wire

RATES = [10**9, 10 * 10**9, 25 * 10**9, 100 * 10**9]
SIZES = [1, 59, 60, 61, 64, 1514, 9000]


def bits_ps(size: int, rate_bps: int) -> int:
    """Preamble, the frame padded to 60, FCS."""
    exact = Fraction(8 * (8 + max(size, 60) + 4) * 10**12, rate_bps)
    assert exact.denominator == 1
    return int(exact)


def gap_ps(rate_bps: int) -> int:
    return 96 * 10**12 // rate_bps


def everything(wire: Wire) -> list[tuple[int, bytes]]:
    """What comes out, each with its time, taken whenever something is due."""
    out = []
    while (due_ps := wire.due_ps) is not None:
        assert wire.pop_due(due_ps - 1) == []
        out += [(due_ps, data) for data, _ in wire.pop_due(due_ps)]
    return out


@pytest.mark.parametrize("rate_bps", RATES)
@pytest.mark.parametrize("delay_us", [0, 5])
def test_a_frame_comes_out_when_its_last_bit_does(rate_bps: int, delay_us: int) -> None:
    for size in SIZES:
        wire = Wire(Faults(Rates(delay_us=delay_us)), rate_bps=rate_bps)
        wire.put(bytes(size), 777)
        assert everything(wire) == [(777 + bits_ps(size, rate_bps) + delay_us * PS_PER_US, bytes(size))]
        assert wire.latency_ps == bits_ps(60, rate_bps) + delay_us * PS_PER_US


@pytest.mark.parametrize("delay_us", [0, 5])
def test_frames_follow_each_other_with_a_gap_and_in_order(delay_us: int) -> None:
    rate_bps, time_ps, expected = 10**9, 100, []
    wire = Wire(Faults(Rates(delay_us=delay_us)), rate_bps=rate_bps)
    for number, size in enumerate(SIZES * 3):
        frame = bytes([number]) * size
        wire.put(frame, 100)
        expected.append((time_ps + bits_ps(size, rate_bps) + delay_us * PS_PER_US, frame))
        time_ps += bits_ps(size, rate_bps) + gap_ps(rate_bps)
    assert everything(wire) == expected


def test_an_idle_wire_begins_at_once_but_not_within_the_gap() -> None:
    end_ps, gap = bits_ps(60, 10**9), gap_ps(10**9)
    for second_ps in (end_ps, end_ps + gap - 1, end_ps + gap, end_ps + gap + 1):
        wire = Wire(rate_bps=10**9)
        wire.put(b"a", 0)
        wire.put(b"b", second_ps)
        assert everything(wire) == [(end_ps, b"a"), (max(end_ps + gap, second_ps) + end_ps, b"b")]


def test_a_perfect_wire_takes_no_time() -> None:
    wire = Wire()
    for number in range(2000):
        wire.put(bytes([number & 0xFF]), 5)
    assert wire.latency_ps == 0 and wire.due_ps == 5 and wire.pop_due(4) == []
    assert wire.pop_due(5) == [Passed(bytes([number & 0xFF]), False) for number in range(2000)] and wire.due_ps is None


@pytest.mark.parametrize("most", [1, 2, 10])
@pytest.mark.parametrize("delay_us", [0, 5])
def test_a_full_queue_drops_and_counts(most: int, delay_us: int) -> None:
    wire = Wire(Faults(Rates(delay_us=delay_us)), rate_bps=10**9, queue_frames=most)
    for number in range(most + 3):
        wire.put(bytes([number]), 0)
    assert wire.counts == {"dropped, queue full": 3}
    first_ps = bits_ps(1, 10**9)
    wire.put(b"x", first_ps - 1)
    assert wire.counts["dropped, queue full"] == 4
    wire.put(b"y", first_ps)  # the first has passed
    assert wire.counts["dropped, queue full"] == 4
    assert [data for _, data in everything(wire)] == [bytes([number]) for number in range(most)] + [b"y"]


@pytest.mark.parametrize("seed", [1, 2])
def test_faults_are_those_of_the_seed(seed: int) -> None:
    rates = Rates(loss=0.1, duplicate=0.1, corrupt=0.1)
    wire, bare = Wire(Faults(rates, seed=seed), rate_bps=10**9, queue_frames=1000), Faults(rates, seed=seed)
    for number in range(1000):
        wire.put(number.to_bytes(60), 0)
        bare.put(number.to_bytes(60), number)
    assert wire.pop_due(10**12) == bare.pop_due(10**12) and wire.faults.counts == bare.counts
    assert bare.counts["loss"] > 50 and bare.counts["duplicate"] > 50


def test_wire_wrong() -> None:
    with pytest.raises(ValueError, match="Wire rate_bps must be above 0, not 0"):
        Wire(rate_bps=0)
    with pytest.raises(ValueError, match="Wire queue_frames must be at least 1, not 0"):
        Wire(queue_frames=0)
