"""Fuzz the parsers of iswitch in Python, guided by coverage: `python -m sim.fuzz.parsers capture --runs 100000`.

Atheris counts the branches of the package's bytecode and compares what the parser compares. An input that makes a door
(`sim.fuzz.doors`) raise another error than it documents, take more than ten seconds or more than 2 GB ends the run and
is left in build/fuzz. Without a name, all doors are fuzzed, one after another.
"""

import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from sim.emulator.toolchain import ROOT

__all__ = ["CORPUS", "kept_inputs"]

CORPUS = ROOT / "tests" / "vectors" / "fuzz" / "parsers"
"""A file for each door: the shortest inputs that reached something new, in hexadecimal digits, one a line."""
FAILED = ROOT / "build" / "fuzz"
LONGEST = 2048
"""Bytes of the longest input that is made."""
KEPT = 20
SECONDS_MAX, MEGABYTES_MAX = 10, 2048


def kept_inputs(name: str) -> list[bytes]:
    """Return the kept inputs of a door."""
    path = CORPUS / f"{name}.hex"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []


def fuzz_one(name: str, arguments: list[str]) -> None:
    """Fuzz a door in this process, which ends then."""
    import atheris

    with atheris.instrument_imports(include=["iswitch"], enable_loader_override=False):
        from sim.fuzz.doors import DOORS
    door = DOORS[name]

    def enter(data: bytes) -> None:
        with suppress(*door.errors):
            door.enter(data)

    atheris.Setup([sys.argv[0], *arguments], enter)
    atheris.Fuzz()


def fuzz(name: str, *, runs: int, seed: int, write: bool, failed: Path = FAILED) -> int:
    """Fuzz a door in a process of its own, and return its exit status.

    Parameters
    ----------
    name : str
        The door.
    runs : int
        Inputs.
    seed : int
        Of all decisions.
    write : bool
        Keep the shortest `KEPT` inputs that reached something new.
    failed : pathlib.Path
        Folder for an input at which the run ended.
    """
    from sim.fuzz.doors import DOORS

    failed.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        every = Path(folder)
        for number, data in enumerate([*DOORS[name].first(), *kept_inputs(name)]):
            (every / f"{number:04}").write_bytes(data)
        limits = [f"-timeout={SECONDS_MAX}", f"-rss_limit_mb={MEGABYTES_MAX}", f"-max_len={LONGEST}"]
        more = [f"-seed={seed}", f"-runs={runs}", f"-artifact_prefix={failed / name}-", "-verbosity=0"]
        command = [sys.executable, "-m", "sim.fuzz.parsers", "--inside", name]
        status = subprocess.run([*command, *limits, *more, str(every)], cwd=ROOT, check=False).returncode
        if status == 0 and write:
            CORPUS.mkdir(parents=True, exist_ok=True)
            kept = sorted((path.read_bytes() for path in every.iterdir()), key=lambda data: (len(data), data))
            (CORPUS / f"{name}.hex").write_text("".join(f"{data.hex()}\n" for data in kept[:KEPT] if data))
    return status


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[DOOR]...", help="Doors; default: all.")] = None,
    runs: Annotated[int, typer.Option(metavar="N", help="Inputs for each door.")] = 20_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all decisions.")] = 1,
    write: Annotated[bool, typer.Option(help="Keep the inputs that reach something new in tests/vectors.")] = False,
) -> None:
    """Fuzz the parsers of iswitch in Python."""
    from sim.fuzz.doors import DOORS

    if unknown := set(names or ()) - set(DOORS):
        raise typer.BadParameter(f"no doors are called {', '.join(sorted(unknown))}; there are {', '.join(DOORS)}")
    bad = [name for name in names or DOORS if fuzz(name, runs=runs, seed=seed, write=write)]
    chosen = len(names or DOORS)
    print(
        f"{chosen} doors, {runs:,} inputs each: " + (f"FAILED at {', '.join(bad)}" if bad else "only documented errors")
    )
    sys.exit(bool(bad))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        fuzz_one(sys.argv[2], sys.argv[3:])
    else:
        typer.run(main)
