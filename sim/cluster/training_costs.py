"""Times of computing and the rate of cables for trainings in virtual time (`sim.cluster.training_time`)."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from examples.common.progress import SimulateCompute
from sim.emulator.program import Program

__all__ = ["RATE_BPS", "Costs", "GradientUs", "Slowdown", "StepUs"]

RATE_BPS = 10e9
"""Rate of every cable, at the switch and at the parameter server."""

StepUs = Annotated[float, typer.Option(help="Microseconds for a step of an environment.")]
GradientUs = Annotated[float, typer.Option(help="Microseconds for the gradient of a minibatch.")]
Slowdown = Annotated[float, typer.Option(help="Factor of both for the last worker.")]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Times of computing.

    Parameters
    ----------
    step_us, gradient_us : float
        Microseconds for a step of one environment, and for the gradient of a minibatch.
    slowdown : float
        Factor of both for the last worker.
    """

    step_us: float = 50.0
    gradient_us: float = 2000.0
    slowdown: float = 5.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"Costs {name} must be above 0, not {value!r}")

    def simulate_on(self, program: Program, *, slow: bool) -> SimulateCompute:
        """Return a function that lets the time of environment steps and of one gradient pass in a program."""
        factor = self.slowdown if slow else 1.0
        return lambda steps: program.sleep((steps * self.step_us + self.gradient_us) * factor / 1e6)
