"""Which lines and branches of the Python package its own tests run: `make coverage`.

`python -m sim.coverage.python --run` runs the short tier of tests/host under coverage.py, and prints a table with a row
for each part of the package, and the files in which most is left. Without `--run` it prints what coverage.py has kept.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from coverage import Coverage

from sim.emulator.toolchain import ROOT

__all__ = ["PACKAGE", "File", "kept", "least_covered", "main", "of_summary", "part_of", "read", "table"]

PACKAGE = "host/iswitch/"
DATA = ROOT / "build" / "coverage" / "python"
"""Where coverage.py keeps its files, by pyproject.toml."""
MOST_FILES = 12


class File(NamedTuple):
    """Statements and branches of a file, those that tests run, and all."""

    statements_run: int
    statements: int
    branches_run: int
    branches: int

    @property
    def left(self) -> int:
        """Statements and branches that no test runs."""
        return self.statements - self.statements_run + self.branches - self.branches_run


def run_tests() -> int:
    """Run the short tier of tests/host under coverage.py, also in the processes that tests start, and return the exit
    status of pytest."""
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    coverage = [sys.executable, "-m", "coverage"]
    status = subprocess.run([*coverage, "run", "-m", "pytest", "tests/host"], cwd=ROOT).returncode
    subprocess.run([*coverage, "combine", "--quiet"], cwd=ROOT, check=True)
    return status


def read() -> dict[str, File]:
    """Return the figures of all files, from what coverage.py has kept."""
    measured = Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(path))
        report = json.loads(path.read_text())
    return {name: of_summary(entry["summary"]) for name, entry in sorted(report["files"].items())}


def of_summary(summary: Mapping[str, int]) -> File:
    """Return the figures of a file of coverage.py's report."""
    return File(
        summary["covered_lines"], summary["num_statements"], summary["covered_branches"], summary["num_branches"]
    )


def part_of(name: str) -> str:
    """Return the part of the package that a file belongs to: a folder, or the package itself."""
    path = name.removeprefix(PACKAGE).split("/")
    return path[0] if len(path) > 1 else "iswitch"


def summed(files: Sequence[File]) -> File:
    return File(*(sum(numbers) for numbers in zip(*files)))


def share(run: int, of: int) -> str:
    """Return a share as the tables show it."""
    return f"{run:,} of {of:,}, {100 * run // of} %" if of else ""


def row(name: str, file: File) -> str:
    return f"| {name} | {share(file.statements_run, file.statements)} | {share(file.branches_run, file.branches)} |"


def table(files: Mapping[str, File]) -> str:
    """Return the shares of each part of the package as a table in Markdown, and their sums."""
    parts: dict[str, list[File]] = defaultdict(list)
    for name, file in files.items():
        parts[part_of(name)].append(file)
    lines = ["| part of `host/iswitch` | statements | branches |", "|---|---|---|"]
    lines += [row(part, summed(of)) for part, of in sorted(parts.items())]
    return "\n".join([*lines, row("all", summed(list(files.values())))])


def least_covered(files: Mapping[str, File], count: int = MOST_FILES) -> str:
    """Return the files in which most statements and branches are left, as a table in Markdown."""
    most = sorted(files, key=lambda name: (-files[name].left, name))[:count]
    return "\n".join(
        ["| file | statements | branches |", "|---|---|---|", *(row(f"`{name}`", files[name]) for name in most)]
    )


def kept(path: Path) -> dict[str, File]:
    """Return the figures that a file keeps."""
    return {name: File(*numbers) for name, numbers in json.loads(path.read_text()).items()}


def main(
    run: Annotated[bool, typer.Option("--run", help="Run the short tier of tests/host before.")] = False,
    out: Annotated[Path | None, typer.Option(help="Keep the figures in this file.")] = None,
    show: Annotated[Path | None, typer.Option(help="Print the tables of a file instead.")] = None,
) -> None:
    """Print which lines and branches tests have run."""
    status = run_tests() if run else 0
    files = kept(show) if show else read()
    if out:
        rows = [f"{json.dumps(name)}: {json.dumps(file)}" for name, file in files.items()]
        out.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    print(f"{table(files)}\n\n{least_covered(files)}")
    sys.exit(status)


if __name__ == "__main__":
    typer.run(main)
