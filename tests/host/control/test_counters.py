import pytest

from iswitch.control.counters import COUNTERS, Severity, explain_counter
from iswitch.control.refusals import REFUSALS
from iswitch.wire import Outcome, PortCounter, Reason, Stat
from iswitch.wire.replay import ReplayOutcome


def test_every_counter_and_refusal_has_a_sentence():
    names = {name for kind in (Outcome, Stat, PortCounter) for name in kind.__members__}
    assert names | {f"replay.{name}" for name in ReplayOutcome.__members__} == COUNTERS.keys()
    assert set(Reason) - {Reason.DONE} == REFUSALS.keys()


def test_every_fault_has_a_remedy_and_normal_counters_have_none():
    assert all(counter.remedy for counter in COUNTERS.values() if counter.severity == Severity.FAULT)
    assert not any(counter.remedy for counter in COUNTERS.values() if counter.severity == Severity.NORMAL)


def test_port_counter_names_its_port():
    assert explain_counter("FORCED") == COUNTERS["FORCED"].meaning
    assert explain_counter("replay.AHEAD") == COUNTERS["replay.AHEAD"].meaning
    assert (
        explain_counter("port2.RX_ERROR")
        == "frames with a bad frame check sequence (port2): check cable and transceiver"
    )


def test_counter_wrong():
    with pytest.raises(KeyError):
        explain_counter("NONE")
