"""A proof: properties of a component, how far they are searched, and the mutants that they must notice."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hw.synthesis.emit import tool
from sim.bench.mutant import mutant
from sim.prove.harness import BEGUN, Harness
from sim.prove.solver import Counterexample, Model

__all__ = ["Proof", "ProofError"]

PREPARE = (
    "read_rtlil model.il; proc; flatten; chformal -lower; memory_collect; memory_map; async2sync; "
    f"opt_expr; opt_clean; dffunmap; setattr -unset init w:* w:{BEGUN} %d; write_smt2 -stbv -wires model.smt2"
)
"""From RTLIL to SMT-LIB. Initial values go, because every trace begins with a reset."""


class ProofError(Exception):
    """A property does not hold, or a state that must be reachable is not reached."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A law of a component, for all inputs in all cycles.

    Parameters
    ----------
    law : str
        What is proved, in a sentence.
    part : module
        The module of the component, which `harness` receives, or a mutant of it.
    harness : callable
        Returns the component with its properties.
    depth : int
        Cycles after the reset in which all traces are searched for errors and for the states to reach.
    induction : int, optional
        Length of the induction in cycles. With it the law holds in all cycles; otherwise in `depth` cycles only.
    covers_all : bool
        The inputs stay, and the component has its result within `depth` cycles, so the law is proved for all inputs.
    reference : str
        SMT-LIB commands that are added to each trace. `{name}` stands for the input `name` in the first cycle, so a
        reference defines what inputs that stay are, such as an expected result in floating point.
    mutants : sequence of (str, str)
        Places of the source and the errors seeded there. The proof must fail with each of them.
    seconds : float
        Processor time that one search may take.
    """

    law: str
    part: ModuleType
    harness: Callable[[Any], Harness]
    depth: int
    induction: int | None = None
    covers_all: bool = False
    reference: str = ""
    mutants: tuple[tuple[str, str], ...]
    seconds: float = 600

    @property
    def extent(self) -> str:
        """How far the law is proved, in words."""
        if self.covers_all:
            return "all inputs"
        if self.induction is None:
            return f"all traces of {self.depth} cycles"
        return f"all traces, by induction over {self.induction} cycles"

    def prove(self) -> None:
        """Search for a trace that breaks a property, and for traces that reach each state that must be reachable.

        Raises
        ------
        ProofError
            If a property fails, or a state is not reached.
        SolverTimeoutError
            If the solver needs more than `seconds`.
        """
        model = self._model(self.part)
        found = self._search(model)
        if found is not None:
            raise ProofError(f"{self.law}: {found}")
        unreached = model.unreached(self.depth)
        if unreached:
            raise ProofError(f"{self.law}: no trace of {self.depth} cycles reaches {', '.join(unreached)}")

    def notices(self, original: str, wrong: str) -> Counterexample | None:
        """Return what shows that a mutant breaks the law, or None if the proof does not notice the mutant."""
        return self._search(self._model(mutant(self.part, original, wrong)))

    def _model(self, part: Any) -> Model:
        with tempfile.TemporaryDirectory() as name:
            Path(name, "model.il").write_text(self.harness(part).rtlil())
            tool("yosys", ["-q", "-p", PREPARE], Path(name))
            return Model(Path(name, "model.smt2").read_text(), seconds=self.seconds, reference=self.reference)

    def _search(self, model: Model) -> Counterexample | None:
        """Search from the reset, or, if the law is to hold in all cycles, from any state in which it held before. Such
        an induction needs only the first cycles after the reset; where it fails, a trace from the reset says more."""
        if self.induction is None:
            return model.counterexample(self.depth)
        step = model.step_counterexample(self.induction)
        if step is None:
            return model.counterexample(self.induction + 1)
        return model.counterexample(self.depth) or step
