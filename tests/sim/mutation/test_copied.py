"""What the tests say of a source text is heard, and nothing is changed in the checkout."""

import os
import time

from sim.mutation.copied import ROOT, copied, dependents, forked

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


def test_a_process_without_end_is_ended():
    begin = time.monotonic()
    status, _, answer = forked(lambda: time.sleep(600), 0.05)
    assert os.WIFSIGNALED(status) and answer is None
    assert time.monotonic() - begin < 60


def test_a_process_that_computes_without_end_is_ended():
    def work():
        while True:
            pass

    status, processor_s, answer = forked(work, 0.5)
    assert os.WIFSIGNALED(status) and answer is None
    assert processor_s < 3


def test_a_process_says_what_its_work_returns():
    assert forked(lambda: {"a": [1, "é"]}, 10)[2] == {"a": [1, "é"]}


def test_what_depends_on_a_component_is_loaded_anew():
    depending = {"hw.decide.ring", "hw.decide.core", "hw.switch"}
    others = {"hw.stream.fifo", "iswitch.wire", "iswitch.wire.formats", "hw.numeric.lane", "numpy", "hw"}
    assert dependents(COMPONENT, depending | others) == depending | {"hw.decide.lowest_missing"}
    assert dependents("host/iswitch/wire/formats.py", {"hw.numeric.lane", "hw.stream.fifo"}) == {
        "iswitch.wire.formats",
        "hw.numeric.lane",
    }
