"""The table of baselines is complete, in the units that it says, and tells what is missing and why."""

import io
import itertools
import json

from rich.console import Console

from sim.bench import bench, replay_baselines, replay_report
from sim.bench.replay_baselines import OPERATIONS, Baselines, Effort, Needed, Rates, needed, rates, reason, repeated
from sim.bench.replay_buffers import NumpyBuffer
from sim.bench.replay_redis import Exchange
from sim.bench.replay_sampler import Cycles

ONCE = Effort(0, 1)
CYCLES = [Cycles(64, 4, 10, 20, 40, 8)]


class Absent:
    def __init__(self, capacity, record_bytes):
        raise ImportError("lib.so: undefined symbol: f")


def table(system="numpy", missing=None):
    found = [Rates(system, 64, 4, 4e6, 8e6, 2e6, 1e6, (5e6, 8e6, 2e6, 1e6))]
    return Baselines(
        found, missing or {}, CYCLES, needed(CYCLES, found), {"cartpole": Exchange(400, 120.0, 3e5, 250.0)}
    )


def test_there_is_a_row_for_each_system_capacity_and_batch():
    found, missing = rates({"numpy": NumpyBuffer, "again": NumpyBuffer}, (32, 64), (1, 8), ONCE)
    assert {row[:3] for row in found} == set(itertools.product(("numpy", "again"), (32, 64), (1, 8))) and len(
        found
    ) == 8
    assert all(min(row[3:7]) > 0 for row in found) and not missing


def test_rates_are_items_a_second(monkeypatch):
    """Turns of 9 s, which only warms up, and of 4, 2 and 8 s a call: the median is 4, and 2 the best."""
    times = itertools.cycle([9] * 4 + [4] * 4 + [2] * 4 + [8] * 4)
    monkeypatch.setattr(replay_baselines, "repeated", lambda call, seconds: next(times))
    found, _ = rates({"numpy": NumpyBuffer}, (32,), (8,), Effort(0, 3))
    assert found == [Rates("numpy", 32, 8, 2, 2, 2, 2, (4, 4, 4, 4))]


def test_a_call_takes_the_mean_of_those_in_its_turn(monkeypatch):
    clock = iter([100, 103, 106, 109])
    monkeypatch.setattr(replay_baselines.time, "perf_counter", lambda: next(clock))
    called = []
    assert repeated(lambda: called.append(1), 7) == 3 and len(called) == 3


def test_a_step_updates_what_was_drawn():
    class Recorder:
        drawn, updated = 0, []

        def __init__(self, capacity, record_bytes): ...
        def add(self, records, priorities): ...

        def sample(self, count):
            self.drawn += 1
            return f"sample {self.drawn} of {count}"

        def update(self, indices, priorities):
            self.updated.append(indices)

    replay_baselines.calls(made := Recorder(32, 1), 32, 8, 0)["step"]()
    assert made.updated == ["sample 1 of 8"]


def test_a_system_that_does_not_load_is_missing_with_its_reason():
    found, missing = rates({"numpy": NumpyBuffer, "absent": Absent}, (32, 64), (8,), ONCE)
    assert missing == {"absent": "ImportError: lib.so: undefined symbol: f"} and {row.system for row in found} == {
        "numpy"
    }


def test_without_a_server_the_rest_is_measured(monkeypatch):
    def none():
        raise FileNotFoundError("no Redis server: install one")

    monkeypatch.setattr(replay_baselines, "server", none)
    monkeypatch.setattr(replay_baselines, "BUFFERS", {"numpy": NumpyBuffer, "torchrl": Absent})
    monkeypatch.setattr(replay_baselines, "NativeBuffer", NumpyBuffer)
    monkeypatch.setattr(replay_baselines, "CAPACITIES", (64,))
    monkeypatch.setattr(replay_baselines, "BATCHES", (4,))
    monkeypatch.setattr(replay_baselines, "EFFORT", {True: ONCE})
    monkeypatch.setattr(replay_baselines, "sampler_cycles", lambda capacity, batches: CYCLES)
    found = replay_baselines.baselines(quick=True)
    assert found.missing == {
        "redis": "FileNotFoundError: no Redis server: install one",
        "torchrl": "ImportError: lib.so: undefined symbol: f",
    }
    assert {row.system for row in found.rates} == {"numpy", "native"} and found.exchanges == {}


def test_the_clock_needed_is_that_of_equal_items_a_second():
    """1e6 samples a second of batches of 4 are 250,000 batches of 10 cycles."""
    median, most = (7, 7, 7, 7), (9e9, 9e9, 9e9, 9e9)
    found = [
        Rates("numpy", 64, 4, *median, (1e6, 8, 8, 8)),
        Rates("cpprb", 64, 4, *median, (1e5, 80, 80, 4)),
        Rates("redis", 64, 4, *median, most),
        Rates("cpprb", 128, 4, *median, most),
    ]
    assert needed(CYCLES, found) == [
        Needed(64, 4, "sample", 2.5e6, "numpy"),
        Needed(64, 4, "update", 400, "cpprb"),
        Needed(64, 4, "step", 800, "cpprb"),
        Needed(64, 4, "add", 16, "numpy"),
    ]
    assert needed(CYCLES, found[2:]) == []


def test_every_figure_has_a_key_of_its_own_and_a_unit():
    found = [*replay_report.figures(table(missing={"cpprb": reason(ImportError("no"))}))]
    keys = [key for key, _, _ in found]
    assert len(set(keys)) == len(keys) == 3 * len(OPERATIONS) + 1 + 3
    assert ("replay.baselines.numpy.2^6.4.update", 8e6, "items/s") in found
    assert ("replay.baselines.sampler.2^6.4.step", 40, "cycles") in found
    assert (
        "replay.baselines.clock_to_match.2^6.4.sample",
        12.5,
        "MHz at which the sampler does as many items/s as numpy in its best turn",
    ) in found
    assert ("replay.baselines.cpprb", None, "missing: ImportError: no") in found
    assert ("replay.baselines.redis.cartpole.push_us", 120.0, "us for 50 items of 48 bytes, 2 actors pushing") in found


def test_tables_show_the_numbers_and_what_is_missing():
    console = Console(record=True, width=200, file=io.StringIO())
    for part in replay_report.tables(table(missing={"torchrl": "ImportError: undefined symbol: f"}), quick=True):
        console.print(part)
    text = console.export_text()
    for expected in (
        "4,000.0",
        "10 (12.5: numpy)",
        "missing TorchRL: ImportError: undefined symbol: f",
        "120",
        "300,000",
        "quick look",
    ):
        assert expected in text


def test_the_picture_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_report, "CAPACITIES", (64,))
    monkeypatch.setattr(replay_report, "BATCHES", (4,))
    replay_report.draw(table(missing={"torchrl": "no"}), tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_make_bench_keeps_what_is_missing_and_why(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "OUT", tmp_path / "bench.json")
    monkeypatch.setattr(bench, "baselines", lambda quick: table(missing={"torchrl": "ImportError: no"}))
    monkeypatch.setattr(replay_report, "draw", lambda found: None)
    monkeypatch.setattr(bench, "MEASUREMENTS", {"replay.baselines": bench.replay_baselines})
    bench.main(quick=True)
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert kept["replay.baselines.torchrl"] == {"value": None, "unit": "missing: ImportError: no"}
    assert kept["replay.baselines.numpy.2^6.4.step"] == {"value": 2e6, "unit": "items/s"}


def test_only_what_is_asked_for_is_measured(monkeypatch, tmp_path):
    """The longest name that what is asked for begins with, and all that begin with it."""
    asked = []

    def measurement(name):
        def measure(quick):
            asked.append(name)
            yield bench.Figure(f"{name}.one", 1, "")

        return measure

    monkeypatch.setattr(bench, "OUT", tmp_path / "bench.json")
    monkeypatch.setattr(bench, "MEASUREMENTS", {name: measurement(name) for name in ("a.b", "a", "c")})
    for only, expected in (
        ("a.b.one", ["a.b"]),
        ("a.b", ["a.b"]),
        ("a.one", ["a"]),
        ("a", ["a.b", "a"]),
        ("", ["a.b", "a", "c"]),
    ):
        asked.clear()
        bench.main(only=only)
        assert asked == expected
