"""What the tests say of a source text is heard, and nothing is changed in the checkout."""

import importlib
import os
import signal
import sys
import time
from types import SimpleNamespace

from sim.mutation.copied import ROOT, Judge, copied, forked, load

COMPONENT = "hw/decide/lowest_missing.py"
TESTS = ["tests/hw/decide/test_lowest_missing.py"]
SOURCE = (ROOT / COMPONENT).read_text()


def changed(old: str, new: str) -> str:
    assert SOURCE.count(old) == 1
    return SOURCE.replace(old, new)


def test_each_kind_of_error_has_its_outcome_and_the_checkout_stays():
    with copied(COMPONENT, TESTS) as copy:
        said = [
            copy.judge(text)
            for text in (
                SOURCE,
                changed("Mux(a < b, a, b)", "Mux(a < b, b, a)"),
                changed("return Mux(a < b, a, b)", "return nothing"),
                changed("return Mux(", "return Mux(("),
                SOURCE + "# The same to all tests\n",
            )
        ]
        assert (ROOT / COMPONENT).read_text() == SOURCE
    assert [verdict.outcome for verdict in said] == ["passed", "failed", "refused", "refused", "passed"]
    assert said[1].test.startswith(TESTS[0] + "::") and said[1].message.startswith("AssertionError")
    assert "nothing" in said[2].message


def test_tests_that_notice_mutants_come_first_and_then_the_quickest():
    """A test may seem quick because an earlier one has made what both need."""
    seconds = {"slow": 9.0, "often": 4.0, "once": 3.0, "quick": 0.1, "quicker": 0.0}
    session = SimpleNamespace(items=[SimpleNamespace(nodeid=name) for name in seconds])
    Judge(COMPONENT, seconds, {"often": 2, "once": 1}).pytest_collection_finish(session)
    assert [item.nodeid for item in session.items] == ["often", "once", "quicker", "quick", "slow"]


def test_a_process_without_end_is_ended():
    """A signal ends it: by itself it would wait for 600 s, and then end without one."""
    status, _, answer = forked(lambda: time.sleep(600), 0.05)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and answer is None


def test_a_process_that_computes_without_end_is_ended():
    def work():
        while True:
            pass

    status, _, answer = forked(work, 0.5)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) and answer is None


def test_a_process_says_what_its_work_returns():
    assert forked(lambda: {"a": [1, "é"]}, 10)[2] == {"a": [1, "é"]}


def test_what_depends_on_a_component_is_not_loaded(tmp_path, monkeypatch):
    """Nor what depends on it by a lazy import of its package."""
    package = tmp_path / "lazy"
    package.mkdir()
    (package / "__init__.py").write_text("def __getattr__(name):\n    import lazy.part\n    return lazy.part\n")
    (package / "part.py").write_text("")
    (package / "user.py").write_text("from lazy import anything\n")
    (package / "other.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        load(["lazy.user", "lazy.part", "lazy.other", "lazy"], but="lazy.part")
        assert {name for name in sys.modules if name.startswith("lazy")} == {"lazy", "lazy.other"}
    finally:
        for name in [name for name in sys.modules if name.startswith("lazy")]:
            del sys.modules[name]


def test_a_module_whose_package_depends_on_the_component_is_not_loaded_either(tmp_path, monkeypatch):
    """It would be no attribute of the package that a test imports, and the test would fail for every mutant."""
    package = tmp_path / "needy"
    package.mkdir()
    (package / "__init__.py").write_text("import needy.other\nimport needy.part\n")
    (package / "part.py").write_text("")
    (package / "other.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        load(["needy.other", "needy"], but="needy.part")
        assert importlib.import_module("needy").other
    finally:
        for name in [name for name in sys.modules if name.startswith("needy")]:
            del sys.modules[name]


def test_a_mutant_of_the_driver_is_noticed():
    component = "host/iswitch/driver/window.py"
    source = (ROOT / component).read_text()
    with copied(component, ["tests/host/driver/test_window.py"]) as copy:
        sound, wrong = (
            copy.judge(text) for text in (source, source.replace("_NARROW, _LEAST = 8, 2", "_NARROW, _LEAST = 8, 1"))
        )
    assert (sound.outcome, wrong.outcome) == ("passed", "failed")
