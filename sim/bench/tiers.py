"""Which tests `make test` runs, and how the rest is divided into shards: decided by measured durations.

A *law* is a test function; its *cases* are its parameters. The short tier holds every law once, by its cheapest case
with stalls if it has such, and all further cases that cost next to nothing. The slow tier holds what is marked `slow`,
the long tier everything else.

`tests/durations.json` keeps the durations, seconds of one processor with nothing beside it. A case that is not in that
file is a cheap or a new one, and belongs to the short tier until it is measured (`make test-all DURATIONS=1`).
"""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

__all__ = [
    "CHEAP_S",
    "LIMIT_S",
    "Durations",
    "law_of",
    "laws_without",
    "listed",
    "merged",
    "read",
    "shard",
    "short",
    "write",
]

Durations = Mapping[str, float]
"""Seconds of each case, by its pytest node id."""

CHEAP_S = 0.1
"""A case of at most so many seconds is always in the short tier. Shorter durations are not kept."""
LIMIT_S = 6.0
"""A law whose cheapest case takes longer is in the long tier only, and docs/testing.md names it."""
UNMEASURED_SLOW_S = 60.0
"""What a case marked `slow` counts in a shard before it is measured."""


def law_of(case: str) -> str:
    """Return the node id of a case's test function."""
    return case.partition("[")[0]


def short(
    cases: Iterable[str], durations: Durations, *, slow: Collection[str] = (), stalled: Collection[str] = ()
) -> set[str]:
    """Return the cases of the short tier.

    Parameters
    ----------
    cases : iterable of str
        Node ids of all collected tests.
    durations : mapping of str to float
        Measured seconds.
    slow : collection of str
        Cases that are marked `slow`: they are never in the short tier.
    stalled : collection of str
        Cases with stalls on their streams: one of them stands for its law if it takes at most `LIMIT_S`.
    """
    laws: dict[str, list[str]] = {}
    for case in cases:
        if case not in slow and durations.get(case, 0.0) <= LIMIT_S:
            laws.setdefault(law_of(case), []).append(case)
    cheap = {case for found in laws.values() for case in found if durations.get(case, 0.0) <= CHEAP_S}
    return cheap | {
        min(found, key=lambda case: (case not in stalled, durations.get(case, 0.0))) for found in laws.values()
    }


def laws_without(cases: Iterable[str], kept: Collection[str]) -> list[str]:
    """Return the laws of which no case is kept, in alphabetical order."""
    return sorted({law_of(case) for case in cases} - {law_of(case) for case in kept})


def listed(laws: Iterable[str]) -> list[str]:
    """Return laws as lines of Markdown, a line for each file: `` - `tests/a.py`: first law; second law ``."""
    files: dict[str, list[str]] = {}
    for law in laws:
        file, _, name = law.partition("::")
        files.setdefault(file, []).append(name.rpartition("::")[2].removeprefix("test_").replace("_", " "))
    return [f"- `{file}`: {'; '.join(names)}" for file, names in files.items()]


def shard(
    cases: Iterable[str], durations: Durations, number: int, count: int, *, slow: Collection[str] = ()
) -> set[str]:
    """Return the cases of shard `number` of `count`, from 1: the longest first, each to the shard that has least so
    far.

    Raises
    ------
    ValueError
        If there is no such shard.
    """
    if not 1 <= number <= count:
        raise ValueError(f"a shard must be 1 to {count} of {count}, not {number}")
    seconds = {case: durations.get(case, UNMEASURED_SLOW_S if case in slow else CHEAP_S) for case in cases}
    filled = [0.0] * count
    chosen = set()
    for case in sorted(seconds, key=lambda case: (-seconds[case], case)):
        least = filled.index(min(filled))
        filled[least] += seconds[case]
        if least == number - 1:
            chosen.add(case)
    return chosen


def read(path: Path) -> dict[str, float]:
    """Return the durations that a file keeps; none if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def merged(kept: Durations, measured: Durations, known: Collection[str]) -> dict[str, float]:
    """Return what should be kept after a run: its measurements, and of the other cases that still exist what was kept
    before."""
    both = {**kept, **measured}
    return {case: round(both[case], 1) for case in sorted(both) if case in known and both[case] > CHEAP_S}


def write(path: Path, durations: Durations) -> None:
    """Write durations, a case a line."""
    path.write_text(json.dumps(durations, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
