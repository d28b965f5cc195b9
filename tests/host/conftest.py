import pytest

from iswitch.control.client import Control
from iswitch.tools.probe import Probe


@pytest.fixture
def control(model):
    """A stranger who asks the module's `model` of a switch."""
    probe = Probe(model.address(1))
    yield Control(probe)
    probe.close()
