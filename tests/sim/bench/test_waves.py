# amaranth: UnusedElaboratable=no
"""A failing test leaves the waveforms of its simulations, each with a view of the component's ports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.sim import Simulator

from hw.stream.fifo import Fifo
from sim.bench.stream import Bench
from sim.bench.waves import Recording, recorded

ROOT = Path(__file__).parents[3]
TESTS = """
from hw.stream.fifo import Fifo
from sim.bench.stream import Bench

def run(expected):
    dut = Fifo(8, depth=2)
    bench = Bench(dut)
    bench.source(dut.i, [1, 2])
    sink = bench.sink(dut.o)
    bench.run()
    assert sink.items == expected

def test_good():
    run([1, 2])

def test_bad():
    run([1, 3])
"""


def test_only_failing_tests_leave_waveforms_and_say_where(tmp_path):
    (tmp_path / "test_two.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "--tier", "all"]
        + ["--rootdir", str(tmp_path), "--waves", str(tmp_path / "waves"), str(tmp_path / "test_two.py")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    [view] = (tmp_path / "waves").glob("*.gtkw")
    assert "test_bad" in view.name and f"gtkwave {view}" in done.stdout
    assert view.with_suffix(".vcd").exists() and len(list((tmp_path / "waves").iterdir())) == 2


def test_a_view_shows_the_ports_and_marks_the_end(tmp_path):
    cycles = 7

    async def fails(ctx):
        await ctx.tick().repeat(cycles)
        raise AssertionError("at the seventh edge")

    with recorded(Recording(tmp_path, "hw/test_x.py::test_y[8-0.5]")) as recording:
        with pytest.raises(AssertionError, match="seventh"):
            Bench(Fifo(8, depth=2)).drive(fails)
        dut = Fifo(8, depth=2)
        simulator = Simulator(dut)
        simulator.add_clock(1e-8)
        simulator.run_until(3e-8)
    assert [view.stem for view in recording.views] == ["hw-test_x.py-test_y-8-0.5", "hw-test_x.py-test_y-8-0.5-2"]
    for view in recording.views:
        text, waveform = view.read_text(), view.with_suffix(".vcd").read_text()
        assert f'[dumpfile] "{view.with_suffix(".vcd")}"' in text
        for port in ("i__payload", "i__valid", "i__ready", "o__payload", "o__valid", "o__ready", "level"):
            assert re.search(rf"(?m)^\S+\.{port}(\[7:0\]|\[1:0\])?$", text), port
            assert re.search(rf"(?m)^\$var wire \d+ \S+ {port} ", waveform), port
        assert marker_of(view) == int(re.findall(r"(?m)^#(\d+)", waveform)[-1])
    assert (cycles - 1) * 10**7 <= marker_of(recording.views[0]) <= (cycles + 1) * 10**7
    recording.delete()
    assert not list(tmp_path.iterdir())


def marker_of(view: Path) -> int:
    return int(re.search(r"(?m)^\*\S+ (\d+)", view.read_text()).group(1))
