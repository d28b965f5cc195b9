"""The data path of the software switch under random sequences of payloads, and what its fuzzer notices."""

import os
import subprocess
import sys

import numpy as np
import pytest

from iswitch.wire import CONTROL, HEADER, Outcome
from sim.emulator.toolchain import ROOT
from sim.fuzz.campaign import Campaign, Ground, Violated, compare_with_model, kept_corpus
from sim.fuzz.mutate import LEAVES, mutated, seeds
from sim.fuzz.runner import build, sanitized_environment
from sim.fuzz.steps import LENGTH, STARTS, STEP, from_text, to_text

SANITIZED = """
import sys
from pathlib import Path
from sim.fuzz.data_path import fuzz_in_process
library, failed, sequences = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
sys.exit(fuzz_in_process(library, minutes=5, seed=1, sequences=sequences, compared=1, failed=failed))
"""
NO_BOUND = ("else if (m >= job->world || !job->member[m].present)", "else if (!job->member[m].present)")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("fuzz"), sanitize=False)


@pytest.mark.parametrize("start", range(len(STARTS)))
def test_kept_sequences_violate_nothing_and_are_the_golden_switch_s(start, library):
    ground = Ground(library, start)
    sequences = [steps for of, steps in kept_corpus() if of == start]
    assert len(sequences) >= 20
    ground.run(np.stack(sequences))
    for steps in sequences[:: 1 + len(sequences) // 24]:
        compare_with_model(start, steps, ground.runner.data_path)


def test_kept_sequences_have_every_outcome_that_the_data_path_decides(library):
    reached = np.zeros(len(Outcome) + 1, np.uint64)
    for start in range(len(STARTS)):
        ground = Ground(library, start)
        ground.run(np.stack([steps for of, steps in kept_corpus() if of == start]))
        reached += ground.runner.outcomes
    left = {"ORDINARY", "FORMING", "PORT", "ADDRESS", "IP_CHECKSUM", "UDP_CHECKSUM", "FILTERED", "RESERVED", "ANSWERED"}
    left |= {"UNANSWERED", "HALTED", "REPLAY", "SPOOFED", "FLOOD_LIMITED", "COLLECTIVE", "CORRUPT"}
    assert reached[0], "no payload was left to the golden switch"
    assert {kind.name for kind in Outcome if not reached[kind + 1]} == left


@pytest.mark.parametrize("seed", [5, 6])
def test_a_campaign_finds_nothing_and_depends_on_its_seed_alone(seed, library):
    first, second = (Campaign(library, seed=seed).run(sequences=1600, compared=1) for _ in range(2))
    assert first == second
    assert first.edges > 1000 and first.kept > 100 and first.beside_model > 100


def sanitized(made, folder, sequences):
    command = [sys.executable, "-c", SANITIZED, str(made), str(folder), str(sequences)]
    return subprocess.run(command, env=sanitized_environment(), cwd=ROOT, capture_output=True, text=True)


def test_sanitizers_find_nothing_in_the_data_path(tmp_path):
    done = sanitized(build(tmp_path, sanitize=True), tmp_path, 400)
    assert done.returncode == 0, done.stderr
    assert "no fault" in done.stdout


@pytest.mark.mutant
def test_sanitizers_notice_a_missing_check_of_a_member_and_the_sequence_is_kept(tmp_path):
    done = sanitized(build(tmp_path, sanitize=True, mutant=NO_BOUND), tmp_path, 1600)
    assert done.returncode and "ERROR: AddressSanitizer" in done.stderr
    (died,) = tmp_path.glob("died-*.bin")
    assert np.frombuffer(died.read_bytes(), STEP).shape == (LENGTH,)


MUTANTS = {
    "a refused payload changes a time": (("        member->heard_tick = heard;\n", ""), "UNUSUAL_CHANGED", 8000),
    "a contribution does not arrive": (
        ("    slot->arrived |= message->bit;\n    if (included)", "    if (included)"),
        "WRONG_SUM",
        400,
    ),
    "a slot cannot be used again": (
        ("> (int32_t)message->state->slots;\n}", "> (int32_t)message->state->slots - 2;\n}"),
        "STUCK",
        400,
    ),
    "a claim may be one update staler": (
        ("step->age > (int)job->staleness", "step->age > (int)job->staleness + 1"),
        "beside the golden switch",
        6000,
    ),
    "a receipt that acknowledges too much": (
        ("> (int32_t)message->state->slots;\n}", "> (int32_t)message->state->slots + 1;\n}"),
        "beside the golden switch",
        6000,
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_within_its_number_of_sequences(name, tmp_path):
    change, law, sequences = MUTANTS[name]
    campaign = Campaign(build(tmp_path, sanitize=False, mutant=change), seed=1)
    with pytest.raises(Violated, match=law) as found:
        campaign.run(sequences=sequences, compared=12)
    (again,) = from_text(found.value.text)
    with pytest.raises(Violated, match=law):
        ground = Ground(tmp_path / "runner.so", again[0])
        ground.run(again[1][None])
        compare_with_model(*again, ground.runner.data_path)


def test_a_mutant_names_one_place(tmp_path):
    with pytest.raises(ValueError, match="one place"):
        build(tmp_path, sanitize=False, mutant=("return", "exit"))


def test_mutations_reach_every_field_of_the_wire_s_records():
    assert {f"header.{name}" for name in HEADER.names} | {f"body.{name}" for name in CONTROL.names} < set(LEAVES)
    pool = seeds(0)
    made = mutated(np.random.default_rng(1), pool, 3000)
    for leaf in LEAVES:
        old, new = pool, made
        for name in leaf.split("."):
            old, new = old[name], new[name]
        assert set(np.unique(new)) - set(np.unique(old)), f"{leaf} always has an old value"


@pytest.mark.parametrize("start", range(len(STARTS)))
def test_a_sequence_survives_its_text(start):
    made = mutated(np.random.default_rng(start), seeds(start), 40)
    for steps in made:
        ((of, back),) = from_text("# a comment\n" + to_text(start, steps))
        present = steps[steps["present"] != 0]
        assert of == start and (back[: len(present)] == present).all() and not back["present"][len(present) :].any()


def test_text_that_is_no_sequence_is_refused():
    with pytest.raises(ValueError, match="at most"):
        from_text("start 0\n" + "01\n" * (LENGTH + 1))
    with pytest.raises(ValueError, match="at most"):
        from_text("start 0\n" + "01" * (STEP.itemsize + 1))


def test_a_failure_can_be_run_again(tmp_path):
    kept = tmp_path / "kept.txt"
    kept.write_text(to_text(*kept_corpus()[0]))
    command = [sys.executable, "-m", "sim.fuzz.data_path", "--replay", str(kept)]
    assert subprocess.run(command, cwd=ROOT, env=os.environ).returncode == 0
