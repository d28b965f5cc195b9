import pytest
from iswitch.explain import COUNTERS, HARMLESS, REFUSALS, explain
from iswitch.wire import Outcome, PortCounter, Reason, Stat


def test_every_counter_and_refusal_has_its_sentence():
    names = {name for kind in (Outcome, Stat, PortCounter) for name in kind.__members__}
    assert names == COUNTERS.keys()
    assert names >= HARMLESS
    assert set(Reason) - {Reason.DONE} == REFUSALS.keys()


def test_port_counter_names_its_port():
    assert explain("LENGTH") == COUNTERS["LENGTH"]
    assert explain("port2.RX_ERROR") == COUNTERS["RX_ERROR"] + " (port2)"


def test_counter_wrong():
    with pytest.raises(KeyError):
        explain("NONE")
