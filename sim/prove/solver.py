"""Searches the traces of a model that Yosys has written in SMT-LIB, with the solver Bitwuzla."""

import re
import time
from dataclasses import dataclass

from bitwuzla import Bitwuzla, Option, Options, Parser, Result, Term, TermManager

from sim.prove.harness import TOP

__all__ = ["Counterexample", "Model", "SolverTimeoutError"]


class SolverTimeoutError(Exception):
    """The solver has no answer within the time that it was given."""


@dataclass(frozen=True)
class Counterexample:
    """A trace that breaks a property.

    Attributes
    ----------
    property : str
        File and line of the property.
    inputs : list of dict
        The inputs by name, cycle by cycle.
    """

    property: str
    inputs: list[dict[str, int]]

    def __str__(self) -> str:
        names = list(self.inputs[0]) if self.inputs else []
        lines = [f"{self.property} does not hold in cycle {len(self.inputs) - 1}. Inputs, cycle by cycle:"]
        lines += [f"  {name}: {' '.join(f'{cycle[name]:x}' for cycle in self.inputs)}" for name in names]
        return "\n".join(lines)


class Model:
    """The states of a design and its properties, as terms of the solver.

    Parameters
    ----------
    text : str
        The design in SMT-LIB, written by Yosys' `write_smt2 -stbv -wires`.
    seconds : float
        Processor time that one search may take.
    reference : str
        SMT-LIB commands about the inputs of the first cycle, each in braces.

    Raises
    ------
    SolverTimeoutError
        From each search that takes longer.
    """

    def __init__(self, text: str, *, seconds: float, reference: str = ""):
        self._text, self._seconds, self._reference = text, seconds, reference
        found = re.search(rf"define-sort \|{TOP}_s\| \(\) \(_ BitVec (\d+)\)", text)
        if found is None:
            raise ValueError(f"Model text must define the states of {TOP!r} as bit vectors")
        self._bits = int(found[1])
        self._inputs = re.findall(r"^; yosys-smt2-input (\S+) ", text, re.MULTILINE)
        self._places = {kind: self._numbered(kind) for kind in ("assert", "cover")}

    def counterexample(self, depth: int) -> Counterexample | None:
        """Return a trace from the reset that breaks a property within `depth` cycles, or None."""
        trace = _Trace(self._text, self._bits, self._seconds)
        for cycle in range(depth):
            trace.extend(initial=cycle == 0)
            self._refer(trace, cycle)
            if trace.satisfies(f"(not {trace.call('a', cycle)})"):
                return self._shown(trace, cycle)
            trace.require(trace.call("a", cycle))
        return None

    def step_counterexample(self, length: int) -> Counterexample | None:
        """Return a trace from any state that keeps the properties for `length` cycles and then breaks one, or None."""
        trace = _Trace(self._text, self._bits, self._seconds)
        for cycle in range(length + 1):
            trace.extend(initial=False)
            if cycle < length:
                trace.require(trace.call("a", cycle))
        return self._shown(trace, length) if trace.satisfies(f"(not {trace.call('a', length)})") else None

    def unreached(self, depth: int) -> list[str]:
        """Return the places of the states to reach that no trace from the reset reaches within `depth` cycles."""
        trace, left = _Trace(self._text, self._bits, self._seconds), dict(self._places["cover"])
        for cycle in range(depth):
            trace.extend(initial=cycle == 0)
            self._refer(trace, cycle)
            left = {
                number: place for number, place in left.items() if not trace.satisfies(trace.call(f"c {number}", cycle))
            }
            if not left:
                break
        return list(left.values())

    def _refer(self, trace: "_Trace", cycle: int) -> None:
        """Add the reference to the first cycle of a trace."""
        if cycle == 0 and self._reference:
            trace.command(self._reference.format_map({name: trace.call(f"n {name}", 0) for name in self._inputs}))

    def _numbered(self, kind: str) -> dict[str, str]:
        """Return file and line of each property of a kind, by number."""
        return dict(re.findall(rf"^; yosys-smt2-{kind} (\d+) \S+ (\S+)", self._text, re.MULTILINE))

    def _shown(self, trace: "_Trace", cycle: int) -> Counterexample:
        broken = [
            place
            for number, place in self._places["assert"].items()
            if not trace.value(trace.call(f"a {number}", cycle))
        ]
        inputs = [{name: trace.value(trace.call(f"n {name}", at)) for name in self._inputs} for at in range(cycle + 1)]
        return Counterexample(property=" and ".join(broken), inputs=inputs)


class _Trace:
    """Consecutive states, constrained by the design and its assumptions."""

    def __init__(self, text: str, bits: int, seconds: float):
        options = Options()
        options.set(Option.PRODUCE_MODELS, True)
        self._parser = Parser(TermManager(), options)
        self._parser.parse(text, True, False)
        begin = time.process_time()
        self._parser.configure_terminator(lambda: time.process_time() - begin > seconds)
        self._solver: Bitwuzla = self._parser.bitwuzla()
        self._bits, self._seconds, self._length = bits, seconds, 0

    def call(self, function: str, cycle: int) -> str:
        """Return the term for one of the design's functions of the state in a cycle."""
        return f"(|{TOP}_{function}| s{cycle})"

    def extend(self, *, initial: bool) -> None:
        """Add a state. `initial`: the state before the reset."""
        cycle, self._length = self._length, self._length + 1
        self.command(f"(declare-const s{cycle} (_ BitVec {self._bits}))")
        for function in ("u", "h", *("i" if initial else "")):
            self.require(self.call(function, cycle))
        if cycle:
            self.require(f"(|{TOP}_t| s{cycle - 1} s{cycle})")

    def command(self, text: str) -> None:
        """Carry out commands of SMT-LIB."""
        self._parser.parse(text, True, False)

    def require(self, term: str) -> None:
        """Add a constraint."""
        self._solver.assert_formula(self._term(term))

    def satisfies(self, term: str) -> bool:
        """Return whether some trace satisfies the term as well. If so, `value` reads that trace until the next call."""
        result = self._solver.check_sat(self._term(term))
        if result is Result.UNKNOWN:
            raise SolverTimeoutError(f"the solver had no answer after {self._seconds:.0f} s of processor time")
        return bool(result is Result.SAT)

    def value(self, term: str) -> int:
        """Return a number, or 0 and 1 for a truth value."""
        value = self._solver.get_value(self._term(term)).value(10)
        return int(value)

    def _term(self, text: str) -> Term:
        return self._parser.parse_term(text)
