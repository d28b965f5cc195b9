"""The compiled data path: its mistakes are noticed, and a machine that cannot compile it is told so."""

import shutil

import pytest

from iswitch.switch import data_path as module
from iswitch.switch import software_switch
from iswitch.switch.data_path import SOURCES, DataPathError, build, library, load
from sim.bench.software_pair import run_random_frames

FRAMES = 20_000
MUTANTS = [
    ("datapath.c", "if (ahead(known, slot->seq) <= 0)", "if (ahead(known, slot->seq) < 0)"),
    ("datapath.c", "    slot->arrived |= message->bit;\n", ""),
    ("datapath.c", "slot->collective != collective || ", ""),
    ("datapath.c", "if (any_is_silent(job, step.waits_for, now_us))", "if (0)"),
    ("datapath.c", "(uint32_t)distance < job->segments", "(uint32_t)distance <= job->segments"),
    ("datapath.c", "step->age > (int)job->staleness", "step->age >= (int)job->staleness"),
    ("datapath.c", "job->admitted_seq = step.slot.seq + 1", "job->admitted_seq = step.slot.seq"),
    ("datapath.c", "if (boundary && job->joining) return UNUSUAL;", ""),
    ("datapath.c", "0xFFFF - ones_complement_sum", "0xFFFE - ones_complement_sum"),
    ("lanes.c", "poison[k] ? NAN_BITS : ", ""),
    ("lanes.c", "int64_t term = llrint(", "int64_t term = (int64_t)("),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("name", "right", "wrong"), MUTANTS)
def test_a_mutant_of_the_data_path_is_noticed(tmp_path, monkeypatch, name, right, wrong):
    sources = tmp_path / "native"
    shutil.copytree(SOURCES, sources)
    text = (sources / name).read_text()
    assert right in text
    (sources / name).write_text(text.replace(right, wrong, 1))
    mutated = load(build(tmp_path, ["cc", "-w"], sources=sources))
    monkeypatch.setattr(software_switch, "library", lambda: mutated)
    with pytest.raises(AssertionError):
        run_random_frames(FRAMES, seed=7)


def test_without_a_compiler_the_error_says_what_helps(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(module, "_name", lambda sources: "none.so")
    library.cache_clear()
    try:
        with pytest.raises(DataPathError, match="this machine has no C compiler: install one"):
            library()
    finally:
        library.cache_clear()


def test_a_compiler_that_fails_is_quoted(tmp_path):
    with pytest.raises(DataPathError, match="could not compile the software switch"):
        build(tmp_path, ["false"])
