"""The times of computing that a training accepts."""

import pytest

from sim.cluster.training_costs import Costs


@pytest.mark.parametrize("name", ["step_us", "gradient_us", "slowdown"])
def test_costs_wrong(name):
    with pytest.raises(ValueError, match=f"Costs {name} must be above 0, not 0"):
        Costs(**{name: 0})
