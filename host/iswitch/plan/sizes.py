"""`python -m iswitch.plan.sizes`: how good the plans of a fabric are as its racks become more: gap, seconds, memory."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, NamedTuple

from iswitch.distribution import describe_missing, extra_of, missing_from

PROGRAM = "python -m iswitch.plan.sizes"
EXTRAS = ("cli", "plan")

try:
    import typer

    from iswitch.plan.schemes import KINDS, PROVED
except ModuleNotFoundError as error:
    if extra_of(error.name) is None:
        raise
    missing = [name for extra in EXTRAS for name in missing_from(extra)]
    raise SystemExit(describe_missing(PROGRAM, missing, *EXTRAS)) from error

__all__ = ["SIZES_HEADER", "Size", "main", "measure_size"]

COUNT = re.compile(r"^(\s*count:\s*)\d+", re.MULTILINE)
"""The setting that is replaced: the first `count` of the file."""
SIZES_HEADER = f"{'racks':>5}  {'kind':6}{'Gb/s':>8}{'bound':>8}{'gap':>8}{'seconds':>9}{'of processor':>14}{'MiB':>6}"


class Size(NamedTuple):
    """A plan of so many racks: its rate and bound, the time and the processor's time of the command, its memory."""

    racks: int
    kind: str
    rate_gbps: float
    bound_gbps: float
    seconds: float
    processor_s: float
    memory_mib: float

    @property
    def text(self) -> str:
        """The plan as a row below `SIZES_HEADER`."""
        gap = self.bound_gbps / self.rate_gbps - 1
        return (
            f"{self.racks:5}  {self.kind:6}{self.rate_gbps:8.4f}{self.bound_gbps:8.4f}"
            f"{'proved' if gap < PROVED else f'{gap:.1%}':>8}"
            f"{self.seconds:9.1f}{self.processor_s:14.1f}{self.memory_mib:6.0f}"
        )


def measure_size(text: str, racks: int, kind: str, time_s: float) -> Size:
    """Plan a fabric with another number of racks in a process of its own, and return what it took.

    Parameters
    ----------
    text : str
        The fabric as YAML; its first `count` is the number of racks.
    racks : int
        Number of racks.
    kind : str
        The kind of plan.
    time_s : float
        Time limit of the plan, in seconds.
    """
    if not COUNT.search(text):
        raise ValueError("the file must have a `count` of racks")
    command = [
        sys.executable,
        "-m",
        "iswitch.tools.cli",
        "plan",
        "fabric.yaml",
        "--kind",
        kind,
        "--seconds",
        f"{time_s:g}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        fabric, output = Path(folder) / "fabric.yaml", Path(folder) / "plan.json"
        fabric.write_text(COUNT.sub(rf"\g<1>{racks}", text, count=1), encoding="utf-8")
        began = time.perf_counter()
        with output.open("wb") as stream:
            process = subprocess.Popen([*command, "--only", "--json"], cwd=folder, stdout=stream)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if process.returncode:
            raise ValueError(f"no plan of {racks} racks")
        plan = json.loads(output.read_text(encoding="utf-8"))
    return Size(
        racks,
        kind,
        plan["rate_gbps"],
        plan["bound_gbps"] or float("inf"),
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )


def main(
    topology: Annotated[Path, typer.Argument(metavar="FILE", help="The fabric; its first `count` is replaced.")],
    racks: Annotated[list[int] | None, typer.Option(metavar="N", min=1, help="Racks. May be repeated.")] = None,
    kind: Annotated[list[str] | None, typer.Option(metavar="KIND", help="Kind of plan. May be repeated.")] = None,
    seconds: Annotated[float, typer.Option(metavar="S", help="Time limit of each plan.")] = 60.0,
) -> None:
    """Plan a fabric with more and more racks, each plan alone in a process, and print gap, time and memory."""
    try:
        kinds = kind or list(KINDS)
        if unknown := [each for each in kinds if each not in KINDS]:
            raise ValueError(f"--kind must be one of {', '.join(KINDS)}, not {unknown[0]!r}")
        text = topology.read_text(encoding="utf-8")
        print(SIZES_HEADER, flush=True)
        for number in racks or (12, 20, 24, 48, 128):
            for each in kinds:
                print(measure_size(text, number, each, seconds).text, flush=True)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name=PROGRAM)
