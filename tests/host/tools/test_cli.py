import json
import re

import pytest
import typer
from typer.testing import CliRunner

from iswitch import Worker
from iswitch.config import Config, Replay
from iswitch.tools.cli import app
from iswitch.wire import VERSION
from sim.bench.help_texts import unprinted
from sim.bench.udp_model import UdpModel


@pytest.fixture(scope="module")
def model():
    with UdpModel(Config(ports=2, window=4, elements=16)) as made:
        yield made


def call(model, *arguments):
    return CliRunner().invoke(app, [*arguments, "--switch", model.address(1)], env={"COLUMNS": "200"})


def test_rebuild_replay_makes_a_corrupt_table_right_and_says_what_was_lost():
    with UdpModel(Config(ports=2, replay=Replay(capacity=2048, sessions=2))) as model:
        with model.lock:
            table = model.switch.service.tables[0]
            table.sums, table.damaged = table.sums._replace(corrupt=True), {3, 2047}
        done = call(model, "rebuild-replay")
        assert done.exit_code == 0 and done.output == (
            f"table 0 at {model.address(1)} is rebuilt; 2 items had a bit error in their priority, which is 0 until an "
            "update\n"
        )
        assert table.is_intact
        assert call(model, "rebuild-replay").output == f"table 0 at {model.address(1)} is rebuilt\n"


def test_rebuild_replay_of_a_switch_without_the_service_says_so(model):
    refused = call(model, "rebuild-replay")
    assert refused.exit_code == 1 and "has no replay service" in refused.stderr


def test_status_shows_jobs_and_ports(model):
    with Worker(model.address(), world=1, job=1):
        text = call(model, "status").output
    assert "2 ports, 256 bit bus" in text
    assert "free" in text and "running" in text and "1 of 1" in text


def test_counters_are_explained(model):
    text = call(model, "counters").output
    assert "CONTROL" in text and "control messages executed" in text and "LENGTH" not in text
    assert "LENGTH" in call(model, "counters", "--all").output


def test_counters_as_json(model):
    counts = json.loads(call(model, "counters", "--json", "--all").output)
    assert counts["LENGTH"] == 0 and counts["port1.RX_FRAMES"] > 0


def test_end_job_frees_the_number_of_a_job(model):
    with Worker(model.address(), world=1, key=7):
        refused = call(model, "end-job", "--job", "0", "--key", "8")
        assert refused.exit_code == 1 and "the key is not the job's" in refused.stderr
        done = call(model, "end-job", "--job", "0", "--key", "7")
        assert done.exit_code == 0 and "is free" in done.output
        again = call(model, "end-job", "--job", "0", "--key", "7")
        assert again.exit_code == 0 and "is free already" in again.output
    with Worker(model.address(), world=1, key=8):
        pass


@pytest.mark.parametrize(("command", "job"), [("end-job", 200), ("resume", 200), ("resume", 0)])
def test_a_command_about_no_job_advises_the_operator(model, command, job):
    result = call(model, command, "--job", str(job), "--key", "7")
    assert result.exit_code == 1 and f"job {job}: there is no such job. `iswitch status` lists" in result.stderr
    assert "Worker" not in result.stderr


def test_the_operator_ends_a_job_whose_key_it_does_not_know(model):
    with Worker(model.address(), world=1, key=7):
        refused = call(model, "end-job", "--job", "0", "--operator-key", "5")
        assert refused.exit_code == 1 and "the operator key is not the switch's, or the switch has none" in " ".join(
            refused.stderr.split()
        )
        with model.lock:
            model.switch.operator_key = 5
        refused = call(model, "end-job", "--job", "0", "--key", "5")
        assert refused.exit_code == 1 and "the key is not the job's" in refused.stderr
        done = call(model, "end-job", "--job", "0", "--operator-key", "5")
        assert done.exit_code == 0 and "is free" in done.output
    with model.lock:
        model.switch.operator_key = 0


def test_resume_lets_a_halted_job_go_on(model):
    with Worker(model.address(), world=1, key=7, timeout_s=10) as worker:
        worker.halt()
        refused = call(model, "resume", "--job", "0", "--key", "8")
        assert refused.exit_code == 1 and "the key is not the job's" in refused.stderr
        done = call(model, "resume", "--job", "0", "--key", "7")
        assert done.exit_code == 0 and "goes on" in done.output
        worker.barrier()


def test_doctor_prints_a_line_for_each_check_and_exits_with_0(model):
    result = call(model, "doctor", "--rate", "0.001")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split()[:2] == ["ok", "name"] and lines[1].split()[:2] == ["ok", "switch"]
    assert any(line.split()[:2] == ["ok", "segment"] for line in lines)


def test_doctor_exits_with_1_if_something_is_bad(model):
    with Worker(model.address(), world=1, job=1, key=7):
        result = call(model, "doctor", "--job", "1", "--key", "8", "--json")
        found = {finding["check"]: finding for finding in json.loads(result.output)}
        assert result.exit_code == 1
        assert (found["key"]["mark"], found["key"]["figure"]) == ("bad", "8 is not the key of job 1") and found["key"][
            "remedy"
        ]
    result = CliRunner().invoke(app, ["doctor", "--switch", "127.0.0.1:1", "--timeout", "0.2"])
    assert result.exit_code == 1 and "no program listens" in result.output and "give the right port" in result.output
    assert CliRunner().invoke(app, ["doctor", "--switch", "127.0.0.1:nowhere"]).exit_code == 1


def test_an_absent_switch_is_reported_in_a_sentence():
    result = CliRunner().invoke(app, ["status", "--switch", "127.0.0.1:1", "--timeout", "0.2"])
    assert result.exit_code == 1
    assert "start the switch" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("command", ["end-job", "resume", "doctor"])
def test_a_command_that_needs_a_key_says_where_it_comes_from(model, monkeypatch, command):
    for name in ("ISWITCH_KEY", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    result = call(model, command, "--job", "1")
    assert result.exit_code == 1 and "--key with the key of its workers" in result.stderr
    assert "a job whose workers are all silent ends when its number is needed" in result.stderr


@pytest.mark.parametrize("command", ["end-job", "resume"])
def test_a_command_with_two_keys_is_wrong(model, command):
    result = call(model, command, "--job", "1", "--key", "5", "--operator-key", "6")
    assert result.exit_code == 1 and "give one key only" in result.stderr


@pytest.mark.parametrize("key", ["-1", str(2**64)])
def test_a_key_out_of_range_is_reported_in_a_sentence(model, key):
    for command in ("end-job", "doctor"):
        result = call(model, command, "--job", "1", "--key", key)
        assert result.exit_code == 1 and "--key must be 0 to" in result.stderr


def test_version_names_package_and_protocol():
    text = CliRunner().invoke(app, ["--version"]).output
    assert re.fullmatch(rf"iswitch-rl \d+\.\d+\.\d+.*, protocol version {VERSION}\n", text)


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_word_of_a_help_text_is_printed(command, width):
    printed = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": str(width)}).output
    assert unprinted(COMMANDS[command], printed) == []
