"""`iswitch report` over a golden switch: the page is well-formed, and its numbers are those of the switch."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from iswitch.config import Config
from iswitch.tools import report_command, report_sampling
from iswitch.tools.cli import app
from iswitch.tools.path_checks import Finding, Mark
from iswitch.tools.report_charts import switch_charts
from iswitch.tools.report_page import page
from iswitch.tools.report_sampling import read_slot_use, take_samples
from iswitch.tools.report_series import intervals, job_rates, mean_rates, rate_series, total_series, totals
from iswitch.tools.snapshot import read_snapshot
from sim.bench.udp_model import UdpModel
from sim.frames.client import Client

CONFIG = Config(ports=2, members=4, window=4, elements=64)
VOID = {"meta"}
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def model():
    with UdpModel(CONFIG) as made:
        yield made


class Page(HTMLParser):
    """Checks that each tag ends, and collects the rows of tables and what a page would load."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.loads, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []
        for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
            ElementTree.fromstring(svg)

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def row(self, first):
        return next(row for row in self.rows if row[0] == first)


def formed(model, world=2):
    workers = [Client.numbered(k, port=k % 2) for k in range(world)]
    for _ in range(2):
        for worker in workers:
            for _, reply in model.switch.receive(worker.port, worker.join(world=world, elements=64), 0):
                worker.take(reply)
    return workers


def summed(model, workers, seqs):
    with model.lock:
        for worker in workers:
            for seq in seqs:
                frame = worker.contribution(worker.first_seq + seq, np.ones(64, np.float32), behind=seq)
                model.switch.receive(worker.port, frame, 0)


def acknowledged(model, workers, seq):
    with model.lock:
        for worker in workers:
            model.switch.receive(worker.port, worker.receipt(worker.first_seq + seq), 0)


def sampled(control, monkeypatch, between=(), seconds=None):
    """Take a sample, and one more after each step of `between`, at seconds 0, 1, 2, ... of a made clock."""
    clock, steps = [100.0], list(between)

    def sleep(_):
        steps.pop(0)()
        clock[0] = round(clock[0] + 1)

    class Clock:
        monotonic = staticmethod(lambda: clock[0])

    Clock.sleep = staticmethod(sleep)
    monkeypatch.setattr(report_sampling, "time", Clock)
    monkeypatch.setattr("iswitch.tools.snapshot.time", Clock)
    return take_samples(control, seconds=len(steps) if seconds is None else seconds, interval_s=1)


def no_doctor(address):
    yield Finding("name", Mark.OK, f"{address} {EVIL}", "")


@pytest.fixture
def quick(monkeypatch):
    """Replaces the doctor, who takes more than a second."""
    monkeypatch.setattr(report_command.write_report, "__kwdefaults__", {"doctor": no_doctor})


def call(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)], env={"COLUMNS": "200"})


def test_the_command_writes_one_page_that_loads_nothing(model, monkeypatch, tmp_path):
    monkeypatch.setattr("iswitch.tools.doctor._WATCHED_S", 0.0)
    out = tmp_path / "page.html"
    formed(model)
    done = call(model.address(1), "--seconds", "0.1", "--interval", "0.05", "--out", out)
    assert done.exit_code == 0 and str(out) in done.output, done.stderr
    shown = Page(out.read_text())
    assert shown.loads == [] and "<script" not in out.read_text() and "url(" not in out.read_text()
    assert shown.row("0")[:4] == ["0", "running", "2 of 2", "2"]
    assert ["0", "1", "live", "1"] in [row[:4] for row in shown.rows]
    assert ["ok", "switch"] in [row[:2] for row in shown.rows]  # from the doctor himself


def test_counters_on_the_page_are_those_of_the_switch_and_of_the_sampling(model, control, monkeypatch):
    workers = formed(model)
    summed(model, workers, [0])

    def repeat():
        summed(model, workers, [0, 0, 0])

    sampling = sampled(control, monkeypatch, [repeat, lambda: None])
    shown, counters = Page(page(sampling)), control.counters()
    reads = {"CONTROL", "port1.RX_FRAMES", "port1.TX_FRAMES"}
    assert counters["DUPLICATE"] == 6 and shown.row("DUPLICATE")[1:3] == ["6", "6"]
    found = {row[0]: int(row[1].replace(",", "")) for row in shown.rows if row[0] in counters}
    assert found.keys() == counters.keys()
    assert {name: found[name] for name in found.keys() - reads} == {
        name: counters[name] for name in counters.keys() - reads
    }
    assert "repeated contributions" in shown.row("DUPLICATE")[3] and "packet loss" in shown.row("DUPLICATE")[4]


def test_rates_are_those_of_the_traffic(model, control, monkeypatch):
    workers = formed(model)

    def four():
        summed(model, workers, range(4))
        acknowledged(model, workers, 4)

    sampling = sampled(control, monkeypatch, [four, lambda: None])
    steps = intervals(sampling)
    assert rate_series(sampling, steps, "", ["ADDED"]).points == [(1.0, 8.0), (2.0, 0.0)]
    assert rate_series(sampling, steps, "", ["ADDED", "RESULTS"]).points == [(1.0, 12.0), (2.0, 0.0)]
    assert total_series(sampling, steps, "", "RESULTS").points == [(0.0, 0.0), (1.0, 4.0), (2.0, 4.0)]
    assert job_rates(sampling, 0).points == [(1.0, 4.0), (2.0, 0.0)] and mean_rates(sampling) == {0: 2.0}
    assert totals(steps)["ADDED"] == 8
    assert Page(page(sampling)).row("0")[4:6] == ["4", "2"]
    assert "contributions added (ADDED): 8\n" in page(sampling)


def test_slots_in_use_are_those_that_wait_for_contributions_or_receipts(model, control):
    workers = formed(model)
    summed(model, workers, [0, 1, 2])
    summed(model, workers[:1], [3])
    acknowledged(model, workers, 1)
    use = read_slot_use(control, CONFIG, read_snapshot(control, CONFIG).jobs[0])
    assert use == (1 / 8, 2 / 8)
    acknowledged(model, workers, 3)
    assert read_slot_use(control, CONFIG, read_snapshot(control, CONFIG).jobs[0]) == (1 / 8, 0)


def test_names_on_the_page_are_escaped(control, monkeypatch):
    sampling = sampled(control, monkeypatch)
    sampling.address, sampling.ended = EVIL, EVIL
    text = page(sampling, [Finding(EVIL, Mark.BAD, EVIL, EVIL)], remarks=[EVIL])
    assert "<script" not in text and Page(text).text.count(EVIL) >= 6


def test_words_between_backticks_are_code_and_escaped(control, monkeypatch):
    found = Finding("window", Mark.OK, "`--rate`, `<b>`, a `", "")
    text = page(sampled(control, monkeypatch), [found])
    assert "<td><code>--rate</code>, <code>&lt;b&gt;</code>, a `</td>" in text
    assert Page(text).row("ok")[2] == "--rate, <b>, a `"


def test_an_empty_switch_has_a_page(control, monkeypatch):
    shown = Page(page(sampled(control, monkeypatch, [lambda: None])))
    assert "No job exists" in shown.text and "8 of 8 jobs are free" in shown.text
    assert "has dropped no frame" in shown.text and "No frame was dropped while" in shown.text


def test_one_sample_shows_no_rates_and_says_so(model, control, monkeypatch):
    formed(model)
    sampling = sampled(control, monkeypatch, seconds=0)
    shown = Page(page(sampling))
    assert len(sampling.samples) == 1 and "one sample only" in shown.text
    assert shown.text.count("This chart needs two samples.") == 6


def test_a_switch_that_stops_answering_leaves_the_page_of_what_was_sampled(model, control, monkeypatch):
    control.timeout_s = 0.05
    formed(model)

    def silence(deaf):
        model.deaf = deaf

    steps = [lambda: None, lambda: silence(True), lambda: None]
    sampling = sampled(control, monkeypatch, steps)
    assert len(sampling.samples) == 2 and sampling.silences == [2.0, 3.0]
    assert "The switch has not answered since. The last sample is that of 1.0 s." in Page(page(sampling)).text
    assert rate_series(sampling, intervals(sampling), "", ["ADDED"]).points == [(1.0, 0.0), (2.0, None), (3.0, None)]
    silence(False)
    sampling = sampled(control, monkeypatch, [lambda: silence(True), lambda: silence(False)])
    assert len(sampling.samples) == 2 and "The switch answered again later." in Page(page(sampling)).text


def test_another_switch_at_the_address_ends_the_sampling(model, control, monkeypatch):
    control.timeout_s, sizes = 0.05, [CONFIG, Config(ports=4)]
    monkeypatch.setattr(control, "switch_info", lambda: sizes.pop(0))

    def silence(deaf):
        model.deaf = deaf

    sampling = sampled(control, monkeypatch, [lambda: silence(True), lambda: silence(False)], seconds=9)
    assert len(sampling.samples) == 1 and "Another switch answers" in Page(page(sampling)).text


def test_a_restart_is_a_gap_and_what_was_counted_since_is_added(model, control, monkeypatch):
    workers = formed(model)
    summed(model, workers, range(4))
    sampling = sampled(control, monkeypatch, [lambda: None, lambda: None])
    middle, last = sampling.samples[1:]
    fresh = {name: 0 for name in last.snapshot.counters} | {"DUPLICATE": 3}
    sampling.samples[2] = last._replace(snapshot=last.snapshot._replace(counters=fresh))
    steps = intervals(sampling)
    assert [step.restarted for step in steps] == [False, True] and totals(steps)["DUPLICATE"] == 3
    assert rate_series(sampling, steps, "", ["ADDED"]).points[-1] == (2.0, None)
    assert "The switch restarted before 2.0 s" in Page(page(sampling)).text


def test_a_counter_that_passes_its_end_is_no_restart(control, monkeypatch):
    sampling = sampled(control, monkeypatch, [lambda: None])
    for sample, count in zip(sampling.samples, (2**32 - 2, 3)):
        sample.snapshot.counters["ADDED"] = count
    [step] = intervals(sampling)
    assert step.rises["ADDED"] == 5 and not step.restarted


def test_more_reasons_than_colours_are_one_line_together(control, monkeypatch):
    sampling = sampled(control, monkeypatch, [lambda: None])
    for name in sampling.samples[1].snapshot.counters:
        sampling.samples[1].snapshot.counters[name] += 1
    [chart] = [each for each in switch_charts(sampling) if "by reason" in each]
    assert chart.count("<li>") == 8 and re.search(r"\d+ other reasons", chart)


def test_ctrl_c_ends_the_sampling_and_the_page_is_written(model, control, monkeypatch, tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    def doctor(address):
        yield Finding("name", Mark.OK, "found first")
        interrupt()

    sampling = sampled(control, monkeypatch, [lambda: None, interrupt], seconds=1000)
    assert len(sampling.samples) == 2 and "Ctrl-C ended the sampling early." in page(sampling)
    report_command.write_report(
        control,
        seconds=0,
        interval_s=1,
        out=tmp_path / "page.html",
        training=None,
        console=Console(quiet=True),
        doctor=doctor,
    )
    text = Page((tmp_path / "page.html").read_text()).text
    assert "found first" in text and "Ctrl-C ended the examination" in text


def test_wrong_files_are_an_error_before_the_switch_is_asked(model, tmp_path):
    for options, message in (
        (["--out", tmp_path / "no" / "page.html"], f"there is no folder {tmp_path / 'no'}"),
        (["--out", tmp_path], "is a folder"),
        (["--out", tmp_path / "page.html", "--training", tmp_path], "holds neither progress.csv nor summary.json"),
    ):
        with model.lock:
            before = model.switch.counters()
        done = call(model.address(), *options)
        assert done.exit_code == 1 and message in done.stderr
        with model.lock:
            assert model.switch.counters() == before
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("endless", [["--seconds", "inf"], ["--seconds", "nan"], ["--interval", "inf"]])
def test_an_endless_sampling_is_refused(model, tmp_path, endless):
    done = CliRunner().invoke(app, ["report", model.address(), "--out", str(tmp_path / "page.html"), *endless])
    assert done.exit_code and not (tmp_path / "page.html").exists()


def test_a_switch_that_never_answers_is_an_error_and_no_page(tmp_path):
    done = call("127.0.0.1:1", "--timeout", "0.1", "--out", tmp_path / "page.html")
    assert done.exit_code == 1 and "start the switch" in done.stderr and not (tmp_path / "page.html").exists()


def test_a_training_is_on_the_page(model, quick, tmp_path):
    (tmp_path / "progress.csv").write_text(
        "update,steps,mean_return,seconds,environment_s,compute_s,aggregation_s,latency_p50_ms,latency_p99_ms\n"
        "20,640,11.5,1.25,0.5,0.5,0.25,,\n40,1280,nan,2.5,1.0,1.0,0.5,7.5,31\n60,1920,80,3.75,1.5,1.5,0.75,8,32\n"
    )
    out = tmp_path / "page.html"
    done = call("--switch", model.address(), "--seconds", "0", "--out", out, "--training", tmp_path)
    assert done.exit_code == 0, done.stderr
    shown = Page(out.read_text())
    assert shown.row(tmp_path.name)[1:5] == ["60", "1,920", "3.8", "80.0"]
    for text in (
        "Learning curve over steps",
        "Aggregation time per update",
        "environment: 1.5 s, 40.0%",
        f"{tmp_path.name}: p99",
    ):
        assert text in shown.text
