"""Faults are a function of seed, port, direction and position; their rates are those asked for."""

import pytest

from sim.emulator.faults import HOLD_US, PS_PER_US, Faults, Passed, Rates, parse_faults

COUNT = 20_000


def frames(count: int) -> list[bytes]:
    return [number.to_bytes(4) * 15 for number in range(count)]


def passed(faults: Faults, count: int = COUNT) -> list[Passed]:
    out = []
    for frame in frames(count):
        faults.put(frame, 0)
        out += faults.pop_due(0)
    return out + faults.pop_due(10**15)


def bits_changed(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()


def test_no_faults_no_change() -> None:
    faults = Faults.none()
    assert not faults.active and faults.due_ps is None
    assert passed(faults, 100) == [Passed(frame, False) for frame in frames(100)]
    assert not any(faults.counts.values())


ALL = Rates(loss=0.1, duplicate=0.1, reorder=0.1, corrupt=0.1, silent_corrupt=0.1)


@pytest.mark.parametrize("other", [{"seed": 2}, {"port": 2}, {"direction": "tx"}])
def test_same_seed_same_faults(other: dict) -> None:
    same = {"seed": 1, "port": 1, "direction": "rx"}
    assert passed(Faults(ALL, **same), 500) == passed(Faults(ALL, **same), 500)
    assert passed(Faults(ALL, **same), 500) != passed(Faults(ALL, **same | other), 500)


def test_one_kind_does_not_move_another() -> None:
    lost = lambda rates: {frame for frame in frames(1000)} - {data for data, _ in passed(Faults(rates), 1000)}
    assert lost(Rates(loss=0.1)) == lost(Rates(loss=0.1, duplicate=0.5, reorder=0.5))


@pytest.mark.parametrize("kind", ["loss", "duplicate", "reorder", "corrupt", "silent_corrupt"])
def test_rates_are_as_asked(kind: str) -> None:
    faults = Faults(Rates(**{kind: 0.05}))
    passed(faults)
    assert faults.counts[kind] == pytest.approx(0.05 * COUNT, rel=0.15)
    assert sum(faults.counts.values()) == faults.counts[kind]


def test_loss_and_duplicates_change_the_count() -> None:
    faults = Faults(Rates(loss=0.2))
    assert len(passed(faults)) == COUNT - faults.counts["loss"]
    faults = Faults(Rates(duplicate=0.2))
    assert len(passed(faults)) == COUNT + faults.counts["duplicate"]


def test_corruption_flips_one_bit_and_marks_it_unless_silent() -> None:
    for rates in (Rates(corrupt=0.1), Rates(silent_corrupt=0.1)):
        out = passed(Faults(rates), 1000)
        changed = [bits_changed(frame, data) for frame, (data, _) in zip(frames(1000), out)]
        assert set(changed) == {0, 1}
        assert [bool(bit and rates.corrupt) for bit in changed] == [error for _, error in out]


def test_reordered_frames_are_overtaken_by_at_most_three() -> None:
    faults = Faults(Rates(reorder=0.1))
    order = [int.from_bytes(data[:4]) for data, _ in passed(faults, 1000)]
    assert sorted(order) == list(range(1000)) and order != sorted(order)
    # Held ones may pass each other too, so nobody is late by more than the overtakers and those held with it.
    late = [sum(later < number for later in order[at:]) for at, number in enumerate(order)]
    overtaken = [sum(before > number for before in order[:at]) for at, number in enumerate(order)]
    assert max(late) > 0 and 1 <= max(overtaken) <= 3


def test_a_frame_is_overtaken_by_as_many_as_the_rates_say() -> None:
    faults = Faults(Rates(reorder=0.2, overtakers=100))
    order = [int.from_bytes(frame.data[:4]) for frame in passed(faults, 3000)]
    overtaken = [sum(before > number for before in order[:at]) for at, number in enumerate(order)]
    assert sorted(order) == list(range(3000)) and 50 < max(overtaken) <= 100
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match="overtakers must be a whole number of frames"):
            Rates(overtakers=wrong)


def test_a_frame_that_nobody_overtakes_goes_after_a_while() -> None:
    faults = Faults(Rates(reorder=1.0))
    faults.put(b"alone", 5)
    assert faults.pop_due(5) == [] and faults.due_ps == 5 + HOLD_US * PS_PER_US
    assert faults.pop_due(5 + HOLD_US * PS_PER_US) == [Passed(b"alone", False)] and faults.due_ps is None


def test_delay() -> None:
    faults = Faults(Rates(delay_us=0.0001))
    faults.put(b"one", 0)
    faults.put(b"two", 50)
    assert faults.due_ps == 100 and faults.pop_due(99) == []
    assert faults.pop_due(100) == [Passed(b"one", False)] and faults.due_ps == 150
    assert faults.pop_due(1000) == [Passed(b"two", False)]


def test_an_error_stays_an_error() -> None:
    faults = Faults(Rates(duplicate=1.0))
    faults.put(b"x", 0, True)
    assert faults.pop_due(0) == [Passed(b"x", True)] * 2


def test_rates_wrong() -> None:
    with pytest.raises(ValueError, match="loss must be 0 to 1, not 2"):
        Rates(loss=2)
    with pytest.raises(ValueError, match="delay_us must not be negative, not -1"):
        Rates(delay_us=-1)
    with pytest.raises(ValueError, match="direction must be rx or tx, not 'up'"):
        Faults(Rates(), direction="up")


def test_faults_of_one_direction() -> None:
    rates = parse_faults(Rates(loss=0.1), ["0:rx:loss=0.5", "0:rx:delay-us=20", "1:tx:silent_corrupt=1"], 2)
    assert rates == {
        (0, "rx"): Rates(loss=0.5, delay_us=20),
        (0, "tx"): Rates(loss=0.1),
        (1, "rx"): Rates(loss=0.1),
        (1, "tx"): Rates(loss=0.1, silent_corrupt=1),
    }
    for wrong in ("2:rx:loss=0", "0:up:loss=0", "0:rx:luck=1", "0:rx:loss", "0:rx:loss=x"):
        with pytest.raises(ValueError, match="a fault must be"):
            parse_faults(Rates(), [wrong], 2)
