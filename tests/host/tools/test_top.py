"""Updates of `iswitch top`: their content, that they fit 80 columns, and how the live view ends."""

import io
import os
import pty
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from iswitch import Worker
from iswitch.config import Config
from iswitch.control.counters import COUNTERS, Severity
from iswitch.tools.cli import app
from iswitch.tools.snapshot import read_snapshot
from iswitch.tools.top import frame
from sim.bench.udp_model import UdpModel
from sim.frames.client import Client

CONFIG = Config(ports=2, members=4, window=4, elements=64)


@pytest.fixture
def model():
    with UdpModel(CONFIG) as made:
        yield made


def text(before, now):
    console = Console(file=io.StringIO(), width=80)
    console.print(frame("10.0.0.1:26963", CONFIG, before, now))
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    return shown


def row(shown, start):
    [found] = [line.split() for line in shown.splitlines() if re.match(rf"\s*{start}\b", line)]
    return found


def formed(model, count, world, **settings):
    """Workers of job 0 that have joined and confirmed."""
    workers = [Client.numbered(k, port=k % 2) for k in range(count)]
    for _ in range(2):
        for worker in workers:
            for _, reply in model.switch.receive(worker.port, worker.join(world=world, elements=64, **settings), 0):
                worker.take(reply)
    return workers


def summed(model, workers, seqs):
    for worker in workers:
        for seq in seqs:
            model.switch.receive(worker.port, worker.contribution(worker.first_seq + seq, np.ones(64, np.float32)), 0)


def test_a_switch_without_jobs_shows_them_as_free(control):
    now = read_snapshot(control, CONFIG)
    shown = text(now, now)
    assert "8 of 8 jobs free" in shown and "none" in shown and "rank" not in shown


def test_a_job_shows_its_rate_and_each_members_lag(model, control):
    workers = formed(model, 2, 2)
    summed(model, workers, range(2))
    before = read_snapshot(control, CONFIG)
    summed(model, workers, range(2, 6))
    model.switch.receive(1, workers[1].receipt(workers[1].first_seq + 6), 0)
    now = read_snapshot(control, CONFIG, before)._replace(time_s=before.time_s + 2)
    shown = text(before, now)
    assert row(shown, "0  running") == ["0", "running", "2/2", "2", "2", "0.00"]
    assert row(shown, "0 +0  live")[3:7] == ["0", "10.0.0.100:40000", "02:00:00:00:00:00", "1"]
    assert row(shown, "0 +1  live")[6] == "0"
    assert "contributions 4; results 2" in shown


def test_a_short_last_segment_counts_as_one_segment_of_the_job(model, control):
    workers = formed(model, 2, 2)
    before = read_snapshot(control, CONFIG)
    for worker in workers:
        for seq, elements in enumerate((64, 64, 64, 2)):
            model.switch.receive(
                worker.port, worker.contribution(worker.first_seq + seq, np.ones(elements, np.float32)), 0
            )
    assert read_snapshot(control, CONFIG, before).jobs[0].contribution_bytes == 4 * (64 + 64 + 64 + 2) / 4


def test_a_forming_job_waits_for_absent_workers(model, control):
    formed(model, 2, 3)
    before = read_snapshot(control, CONFIG)
    shown = text(before, read_snapshot(control, CONFIG, before))
    assert row(shown, "0  forming") == ["0", "forming", "2/3", "3", "0", "0.00", "2"]
    assert row(shown, "0 +2  absent")


def test_only_a_stalled_job_shows_the_ranks_that_it_waits_for(model, control):
    a, b, c = workers = formed(model, 3, 3)
    before = read_snapshot(control, CONFIG)
    summed(model, [a, c], [0])
    now = read_snapshot(control, CONFIG, before)
    assert now.jobs[0].awaited == [b.member]
    summed(model, [b], [0])
    for worker in workers:
        model.switch.receive(worker.port, worker.receipt(worker.first_seq + 1), 0)
    assert read_snapshot(control, CONFIG, now).jobs[0].awaited == []


def test_a_member_that_acknowledges_nothing_is_awaited_when_the_ring_is_full(model, control):
    """The ring is full of 2 W results of one worker alone, and the other worker has not acknowledged the first."""
    a, b = formed(model, 2, 2, threshold=1)
    summed(model, [b], range(2 * CONFIG.window))
    model.switch.receive(b.port, b.receipt(b.first_seq + 2 * CONFIG.window), 0)
    before = read_snapshot(control, CONFIG)
    assert before.jobs[0].awaited == []  # nobody knows yet whether it moves
    assert read_snapshot(control, CONFIG, before).jobs[0].awaited == [a.member]


def test_rising_drops_come_first_and_faults_before_others(model, control):
    before = read_snapshot(control, CONFIG)
    quiet = {name: 0 for name in before.counters}
    now = quiet | {"DUPLICATE": 20, "LENGTH": 10, "port1.RX_ERROR": 5}
    shown = text(
        before._replace(counters=quiet | {"port1.RX_ERROR": 5}),
        before._replace(counters=now, time_s=before.time_s + 10),
    )
    tail = shown[shown.index("unusual events") :].splitlines()[1:]
    assert [line.split()[:3] for line in tail] == [
        ["LENGTH", "1", "10"],
        ["DUPLICATE", "2", "20"],
        ["port1.RX_ERROR", "0", "5"],
    ]


def test_a_frame_fits_80_columns_whatever_is_counted(model, control):
    formed(model, 4, 4)
    before = read_snapshot(control, CONFIG)
    full = {name: 2**32 - 1 for name in before.counters}
    shown = text(before, before._replace(counters=full, time_s=before.time_s + 1))
    assert "4,294,967,295" in shown and "4.29G" in shown
    assert sum(counter.severity != Severity.NORMAL for counter in COUNTERS.values()) > shown[
        shown.index("unusual events") :
    ].count("\n")


def test_once_prints_one_update_or_saves_it_as_svg(model, tmp_path):
    with Worker(model.address(), world=1):
        result = CliRunner().invoke(app, ["top", "--once", "--interval", "0.05", "--switch", model.address(1)])
        assert result.exit_code == 0 and "running" in result.output
        drawing = tmp_path / "top.svg"
        result = CliRunner().invoke(
            app, ["top", "--once", "--interval", "0.05", "--switch", model.address(1), "--svg", str(drawing)]
        )
        assert result.exit_code == 0 and drawing.read_text().startswith("<svg")
        assert "url(http" not in drawing.read_text() and "running" in drawing.read_text()  # it loads nothing
    result = CliRunner().invoke(
        app, ["top", "--once", "--interval", "0.05", "--switch", model.address(1), "--svg", str(tmp_path)]
    )
    assert result.exit_code == 1 and "cannot be written" in " ".join(result.stderr.split())


def test_a_clean_run_shows_why_refusals_are_counted(model):
    for _ in range(3):
        with Worker(model.address(), world=1):
            pass
    shown = CliRunner().invoke(app, ["top", "--once", "--interval", "0.05", "--switch", model.address(1)]).output
    [row] = [line for line in shown.splitlines() if line.startswith("REFUSED")]
    assert row.split()[2] == "3" and "the first Join of each worker" in row


@pytest.mark.parametrize("end", ["q", signal.SIGINT], ids=["q", "Ctrl-C"])
def test_a_live_view_ends_cleanly_and_leaves_the_terminal_as_it_was(model, end):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "iswitch.tools.cli", "top", "--interval", "0.05", "--switch", model.address(1)]
    restore_interrupt = lambda: signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a parent that runs in the background makes its children ignore Ctrl-C
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
        preexec_fn=restore_interrupt,
    ) as process:
        os.close(theirs)
        seen = b""
        while b"jobs free" not in seen:
            seen += os.read(ours, 4096)
        if isinstance(end, str):
            os.write(ours, end.encode())
        else:
            process.send_signal(end)
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:  # the other side is gone
            pass
        assert process.wait(timeout=30) == 0
    os.close(ours)
    assert b"\x1b[?1049h" in seen and b"\x1b[?1049l" in seen and b"Traceback" not in seen
