"""`iswitch metrics`, read by the parser of prometheus_client, beside the switch itself."""

import socket
import threading
import urllib.request

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from iswitch.config import Config, Replay
from iswitch.control.client import Control
from iswitch.driver.udp import UdpTransport
from iswitch.metrics import serve_families
from iswitch.metrics.endpoint import exposition
from iswitch.tools.cli import app
from iswitch.tools.snapshot import read_snapshot
from iswitch.tools.switch_families import SwitchSource, switch_families
from iswitch.wire import Outcome
from sim.bench.udp_model import UdpModel, together


@pytest.fixture
def model():
    with UdpModel(Config(ports=2, window=4, elements=16, replay=Replay(capacity=64, sessions=2))) as made:
        yield made


@pytest.fixture
def source(model):
    transport = UdpTransport(model.address())
    yield SwitchSource(Control(transport, address=model.address(), timeout_s=0.3))
    transport.close()


def read(text):
    """Return each value of a text in the exposition format, by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def send_garbage(model):
    host, _, port = model.address(1).rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for _ in range(5):
            client.sendto(b"\xff" * 30, (host, int(port)))
    model.until(lambda switch: switch.outcomes[Outcome.VERSION] == 5)


def counters_of(values):
    """Return the counters by their names in `Control.counters`."""
    found = {}
    for (name, *labels), value in values.items():
        labels = dict(labels)
        if name == "iswitch_frames_total":
            found[labels["outcome"]] = value
        elif name == "iswitch_port_events_total":
            found[f"port{labels['port']}.{labels['event']}"] = value
        elif name == "iswitch_replay_requests_total":
            found[f"replay.{labels['outcome']}"] = value
        elif name.endswith("_total") and not labels:
            found[name.removeprefix("iswitch_").removesuffix("_total").upper()] = value
    return found


def test_every_counter_of_the_switch_has_its_value(model, source):
    send_garbage(model)
    together(model, 2, lambda worker: worker.allreduce(np.ones(40, np.float32)))
    with model.lock:
        before = {
            name.removeprefix("outcome.").removeprefix("stat."): count
            for name, count in model.switch.counters().items()
        }
    shown = counters_of(read(exposition(source.families)))
    assert list(shown) and set(shown) == set(before)
    reads = {"CONTROL", "port0.RX_FRAMES", "port0.TX_FRAMES"}
    assert {name: shown[name] for name in set(before) - reads} == {name: before[name] for name in set(before) - reads}
    assert shown["VERSION"] == 5 and shown["ADDED"] == 6 and shown["RESULTS"] == 3
    assert all(shown[name] > before[name] for name in reads)


def test_jobs_and_members_are_those_of_the_snapshot(model, source):
    def body(worker):
        worker.allreduce(np.ones(64, np.float32))
        if worker.rank:
            return None
        transport = UdpTransport(model.address())
        control = Control(transport, address=model.address())
        info = control.switch_info()
        now = read_snapshot(control, info)
        transport.close()
        return read(exposition(lambda: switch_families(info, now))), now

    values, now = together(model, 2, lambda worker: (body(worker), worker.barrier())[0], job=3)[0]
    job = ("job", "3")
    assert values["iswitch_job_state", job, ("state", "running")] == 1
    assert values["iswitch_job_state", job, ("state", "forming")] == 0
    assert values["iswitch_job_world", job] == values["iswitch_job_live", job] == 2
    assert values["iswitch_job_threshold", job] == now.jobs[3].job.threshold == 2
    assert values["iswitch_job_contribution_bytes", job] == now.jobs[3].contribution_bytes > 0
    assert values["iswitch_job_segments_total", job] == now.jobs[3].lowest - now.jobs[3].job.first_seq
    for rank in range(2):
        labels = (job, ("port", str(rank)), ("rank", str(rank)))
        assert values["iswitch_member_silent_seconds", *labels] == now.jobs[3].members[rank].silent_s
        assert values["iswitch_member_lag_segments", *labels] >= 0
        assert values["iswitch_job_awaited", job, ("rank", str(rank))] == 0


def test_a_job_without_progress_names_the_rank_that_it_waits_for(model, source):
    def body(worker):
        if worker.rank == 0:
            future = worker.allreduce(np.ones(4, np.float32), async_op=True)
            model.until(lambda switch: switch.outcomes[Outcome.ADDED] == 1)
            source.families()  # whether a job makes progress shows in two scrapes
            values = read(exposition(source.families))
            scraped.wait()
            future.result()
            return values
        scraped.wait()
        worker.allreduce(np.ones(4, np.float32))
        return None

    scraped = threading.Barrier(2, timeout=30)
    values = together(model, 2, body)[0]
    assert values["iswitch_job_awaited", ("job", "0"), ("rank", "1")] == 1
    assert values["iswitch_job_awaited", ("job", "0"), ("rank", "0")] == 0


def test_a_switch_that_does_not_answer_is_not_up_and_shows_no_old_counters(model, source):
    assert read(exposition(source.families))[("iswitch_up",)] == 1
    model.deaf = True
    assert read(exposition(source.families)) == {("iswitch_up",): 0}
    model.deaf = False
    assert read(exposition(source.families))[("iswitch_up",)] == 1


def test_sizes_are_read_anew_after_a_silence(model, source, monkeypatch):
    """Another switch may have taken the place of the first one."""
    read_info, reads = Control.switch_info, []
    monkeypatch.setattr(Control, "switch_info", lambda control: reads.append(1) or read_info(control))
    for deaf in (False, False, True, False, False):
        model.deaf = deaf
        source.families()
    assert len(reads) == 2


def test_the_endpoint_speaks_text_format_0_0_4(source):
    with serve_families(source.families, port=0, address="127.0.0.1") as endpoint:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            values = read(answer.read().decode())
    assert values[("iswitch_up",)] == 1 and values["iswitch_frames_total", ("outcome", "CONTROL")] > 0


def test_the_command_prints_the_metrics_once(model):
    done = CliRunner().invoke(app, ["metrics", "--once", "--switch", model.address()])
    assert done.exit_code == 0 and read(done.output)[("iswitch_up",)] == 1


def test_the_command_says_that_its_port_is_in_use(model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["metrics", "--port", str(port), "--switch", model.address()])
    assert done.exit_code == 1 and "in use" in done.stderr


def test_the_command_names_the_extra_that_it_needs(monkeypatch):
    monkeypatch.setattr("iswitch.tools.cli.missing_from", lambda extra: ["prometheus-client"])
    done = CliRunner().invoke(app, ["metrics"])
    assert done.exit_code == 1 and "pip install 'iswitch-rl[cli,metrics]'" in done.stderr
