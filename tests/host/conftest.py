import pytest

from iswitch.control.client import Control
from iswitch.tools.probe import Probe


@pytest.fixture
def control(model):
    """A control client of the module's `model` of a switch, in no job."""
    probe = Probe(model.address(1))
    yield Control(probe)
    probe.close()
