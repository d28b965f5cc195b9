"""The compiled library: its mistakes are noticed, and a machine that cannot compile it is told so."""

import shutil

import pytest

from iswitch.native import loader as module
from iswitch.native.loader import LEVELS, SOURCES, LibraryError, best_level, build, library, load
from iswitch.switch import software_switch
from sim.bench.software_pair import run_poisoned_sums, run_random_frames

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
    ("datapath.c", "0xFFFF - total", "0xFFFE - total"),
    ("datapath.c", "slot->length / element_bytes(slot->format)", "slot->length / 4"),
    ("half.c", "poison[k] ? (uint16_t)shape.nan : ", ""),
    ("half.c", "ldexp(1.5, 52 - 7)", "ldexp(1.5, 52 - 8)"),
    ("lanes.c", "(poison && poison[k]) ? NAN_BITS : ", ""),
    ("lanes.c", "as_float(rounded) + 0.0f", "as_float(rounded)"),
    ("lanes.c", "ldexpf(1.0f, 23 - terms.fraction)", "ldexpf(1.0f, 22 - terms.fraction)"),
    ("lanes.c", "!rejects(terms) && terms.fraction", "terms.fraction"),
    ("accumulator.c", "memset(to.poison, 0, count);", ";"),
    ("accumulator.c", "had_poison || rejects(added(terms))", "rejects(added(terms))"),
    ("accumulator.c", "poison ? poison + at : NULL", "poison"),
    ("accumulator.c", ".fraction = (int16_t)terms.fraction", ".fraction = 0"),
    ("lanes.c", "llrint(", "(int64_t)("),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("name", "right", "wrong"), MUTANTS)
def test_a_mutant_of_the_data_path_is_noticed(tmp_path, monkeypatch, name, right, wrong):
    sources = tmp_path / "native"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    text = (sources / name).read_text()
    assert right in text
    (sources / name).write_text(text.replace(right, wrong, 1))
    mutated = load(build(tmp_path, ["cc", "-w"], best_level(), sources=sources))
    monkeypatch.setattr(software_switch, "library", lambda: mutated)
    with pytest.raises(AssertionError):
        run_poisoned_sums(workers=1)
        run_poisoned_sums(workers=2)
        run_random_frames(FRAMES, seed=7)


@pytest.mark.parametrize("level", list(LEVELS)[list(LEVELS).index(best_level()) :])
def test_each_level_of_vector_instructions_gives_the_golden_switch_s_frames(tmp_path, monkeypatch, level):
    compiled = load(build(tmp_path, ["cc"], level))
    monkeypatch.setattr(software_switch, "library", lambda: compiled)
    run_poisoned_sums(workers=2)
    run_random_frames(FRAMES // 4, seed=7)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder of compiled libraries."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    yield tmp_path / "iswitch"
    library.cache_clear()


def test_without_a_compiler_the_error_says_what_helps(cache, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(LibraryError, match="this machine has no C compiler: install one"):
        library()


def test_a_library_is_compiled_once(cache, monkeypatch):
    library()
    [made] = cache.glob("*.so")
    library.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert library()._name == str(made)


@pytest.mark.parametrize("content", [b"", b"no library"])
def test_a_damaged_library_is_compiled_again(cache, content):
    library()
    [made] = cache.glob("*.so")
    made.unlink()
    made.write_bytes(content)
    library.cache_clear()
    assert library().server_now_us() >= 0


@pytest.mark.parametrize("home", ["file", "none"])
def test_without_a_folder_that_can_be_written_there_is_a_library(tmp_path, monkeypatch, home):
    (tmp_path / "file").write_text("")
    if home == "file":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    else:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(module.Path, "home", raise_no_home)
    library.cache_clear()
    assert library().server_now_us() >= 0
    library.cache_clear()


def raise_no_home():
    raise RuntimeError("Could not determine home directory.")


def test_a_compiler_that_fails_is_quoted(tmp_path):
    with pytest.raises(LibraryError, match="could not compile"):
        build(tmp_path, ["false"], "baseline")
