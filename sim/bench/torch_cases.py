"""What comes of PyTorch's own cases over the switch, with the reason for each that does not pass.

`python -m sim.bench.torch_cases` runs them and prints the table of docs/torch_cases.md. A case that fails is run again:
with the option `fallback="gloo"` if the backend has refused a collective by name, and else over gloo alone, the oracle.
A case that gloo fails in the same place, with its tensors on the CPU, says nothing of a backend.
"""

import re
import signal
import sys
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from sim.bench.torch_case_runner import LIMIT_S, Case, Runner, open_runner

__all__ = ["Verdict", "judge", "table"]

_OUTCOMES = ("passed", "refused by name", "not applicable", "failed")
_SKIPS = (
    (r"issues/|pull/|flak", "PyTorch skips it everywhere: an open issue"),
    (r"torchvision", "needs torchvision"),
    (r"(?i)nccl|MPI", "for other backends (NCCL, MPI)"),
)
"""Reasons for which PyTorch skips cases over gloo, too."""
_NEEDS = (
    (r"SyncBatchNorm layers only work with GPU", "needs a GPU: SyncBatchNorm"),
    (r"timed out after|no end within", "exceeds the limit with its tensors on the CPU"),
    (r"NCCL built in", "needs NCCL beside the backend"),
    (r"accelerator|cpu backend doesn't support|None is not|'' != '|GPU|CUDA|cuda", "needs a GPU"),
)
"""Errors of cases that gloo fails, too."""
_GLOO_ALONE = (
    (r"monitored_barrier|monitoredBarrier", "`monitored_barrier`, which torch.distributed has for gloo alone"),
    (r'"[^"]*Timed out\|closed\|timeout[^"]*" does not match', "wants gloo's words of a time-out"),
)
"""Errors of cases that ask for gloo by other means than its name."""
_MESSAGES = re.compile("cannot do (send|recv)( from any rank)?$")
_LEFT_OUT = {"test_ddp_uneven_inputs": "takes more than two minutes without a GPU, over gloo, too; runs if it is named"}
"""Cases that run only if they are named."""


class Verdict(NamedTuple):
    """What a case says of the backend."""

    name: str
    outcome: str
    """One of `_OUTCOMES`."""
    reason: str
    """Why the case does not pass."""
    text: str
    """The error, with its traceback."""
    seconds: float
    """Of all runs of the case."""


def _match(table: Iterable[tuple[str, str]], text: str) -> str | None:
    return next((reason for pattern, reason in table if re.search(pattern, text)), None)


def judge(runner: Runner, name: str) -> Verdict:
    """Run a case, and again if it fails. Return what it says of the backend."""
    case = runner.run(name)
    if case.outcome == "passed":
        return Verdict(name, "passed", "", "", case.seconds)
    if case.outcome == "skipped":
        return Verdict(name, "not applicable", _match(_SKIPS, case.text) or case.text, case.text, case.seconds)
    again = runner.run(name, fallback="gloo") if case.refusal else runner.run(name, backend="gloo")
    return Verdict(name, *_explain(case, again), case.text, case.seconds + again.seconds)


def _explain(case: Case, again: Case) -> tuple[str, str]:
    """Return outcome and reason of a case that has failed, given its second run."""
    if case.refusal:
        done = again.outcome == "passed"
        refusal = _MESSAGES.sub("cannot do send and recv", case.refusal)  # either rank may be the first to refuse
        return ("refused by name", refusal) if done else ("failed", f"with the fallback: {again.error}")
    if again.outcome != "passed":
        return "not applicable", f"gloo fails it, too: {_match(_NEEDS, again.text) or again.error}"
    alone = _match(_GLOO_ALONE, case.text)
    return ("not applicable", alone) if alone else ("failed", case.error)


def table(verdicts: list[Verdict]) -> list[str]:
    """Return the lines of a table in Markdown: the number of cases of each outcome and reason, and their names.

    Names of cases that PyTorch skips, and of those that pass, are left out.
    """
    lines = ["| outcome | reason | cases | names |", "|---|---|---|---|"]
    for outcome in _OUTCOMES:
        found = [verdict for verdict in verdicts if verdict.outcome == outcome]
        reasons = sorted({verdict.reason for verdict in found}, key=lambda reason: (reason not in dict(_SKIPS), reason))
        for reason in reasons or [""]:
            names = [verdict.name.removeprefix("test_") for verdict in found if verdict.reason == reason]
            skipped = reason in (words for _, words in _SKIPS)
            listed = "" if outcome == "passed" or skipped else ", ".join(f"`{name}`" for name in names)
            lines.append(f"| {outcome} | {reason} | {len(names)} | {listed} |")
    return lines


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Cases, by default all.")] = None,
    ranks: Annotated[int, typer.Option(min=2, help="Processes of each case.")] = 4,
    limit_s: Annotated[float, typer.Option(min=1, help="Limit of a case.")] = LIMIT_S,
    trace: Annotated[bool, typer.Option("--trace", help="Print tracebacks of cases that do not pass.")] = False,
) -> None:
    """Run PyTorch's own cases for a backend over a software switch. Print a line for each on stderr, then the table.

    Exit code: 0, or 1 if a case fails. Ctrl-C ends the case, prints the table of those before it, and exits with 130.
    """
    progress = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    verdicts: list[Verdict] = []
    with open_runner(ranks, limit_s) as runner:
        for kind in (signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, runner.stop)
        known = runner.names()
        if unknown := [name for name in names or [] if name not in known]:
            raise typer.BadParameter(f"PyTorch has no case {unknown[0]!r}: names are as {known[0]!r}")
        chosen, interrupted = names or known, False
        try:
            for number, name in enumerate(chosen, 1):
                if not names and name in _LEFT_OUT:
                    verdicts.append(Verdict(name, "not applicable", _LEFT_OUT[name], "", 0.0))
                    continue
                verdict = judge(runner, name)
                verdicts.append(verdict)
                place = f"{number}/{len(chosen)}"
                progress.print(f"{place:>7} {verdict.seconds:5.1f} s  {verdict.outcome}: {name}  {verdict.reason}")
                if trace and verdict.text:
                    progress.print(verdict.text)
        except KeyboardInterrupt:
            interrupted = True
    print("\n".join(table(verdicts)))
    if interrupted:
        sys.exit(130)
    sys.exit(any(verdict.outcome == "failed" for verdict in verdicts))


if __name__ == "__main__":
    typer.run(main)
