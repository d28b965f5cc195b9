import pytest
from iswitch.control import Control
from iswitch.probe import Probe


@pytest.fixture
def control(model):
    """A stranger who asks the module's `model` of a switch."""
    probe = Probe(model.address(1))
    yield Control(probe)
    probe.close()
