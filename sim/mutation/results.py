"""What runs with mutants have found, as `docs/mutation.json` keeps it and as the documentation shows it."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sim.mutation.copied import ROOT

__all__ = ["RESULTS", "Result", "Survivor", "changed", "digest", "read", "table", "write"]

RESULTS = ROOT / "docs" / "mutation.json"


@dataclass
class Survivor:
    """A mutant that no test notices.

    Attributes
    ----------
    where : str
        Class and function.
    original, wrong : str
        The place without and with the error; `wrong` is empty if the place is left out.
    equivalent : bool
        No input that the component may be given tells the mutant from the original.
    reason : str
        Why it is equivalent, or what a test would need. An empty string: nobody has looked yet.
    """

    where: str
    original: str
    wrong: str
    equivalent: bool = False
    reason: str = ""


@dataclass
class Result:
    """What the tests of a component said of a sample of its mutants.

    Attributes
    ----------
    source : str
        Digest of the source file.
    seed : int
        Seed of the sample.
    places : int
        Number of all mutants of the file.
    outcomes : dict
        For each mutant of the sample: "failed", "raised", "timed out", "refused" or "passed" (sim.mutation.copied).
    survivors : dict
        The mutants that passed.
    """

    source: str
    seed: int
    places: int
    outcomes: dict[str, str]
    survivors: dict[str, Survivor] = field(default_factory=dict)

    @property
    def built(self) -> int:
        """Mutants of the sample that could be built."""
        return sum(outcome != "refused" for outcome in self.outcomes.values())

    @property
    def equivalent(self) -> int:
        """Survivors that no input tells from the original."""
        return sum(survivor.equivalent for survivor in self.survivors.values())

    @property
    def noticed(self) -> int:
        """Mutants of the sample that were built, and that a test noticed."""
        return self.built - len(self.survivors)


def digest(source: str) -> str:
    """Return what tells a source text from others."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def changed(results: Mapping[str, Result], root: Path = ROOT) -> set[str]:
    """Return the components whose source is another one than that of their results."""
    return {
        component
        for component, result in results.items()
        if digest((root / component).read_text(encoding="utf-8")) != result.source
    }


def read(path: Path = RESULTS) -> dict[str, Result]:
    """Return the results that a file keeps, by component; none if there is no such file."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {
        component: Result(
            **result | {"survivors": {name: Survivor(**one) for name, one in result["survivors"].items()}}
        )
        for component, result in kept.items()
    }


def write(results: Mapping[str, Result], path: Path = RESULTS) -> None:
    """Write results."""
    kept = {component: asdict(result) for component, result in sorted(results.items())}
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def cell(text: str) -> str:
    """Return source text as a cell of a Markdown table."""
    return f"`{text}`".replace("|", "\\|") if text else "left out"


def table(results: Mapping[str, Result], changed: Collection[str] = ()) -> str:
    """Return the results as two Markdown tables: the numbers of each file, and the survivors with their reasons. Rows
    of files that are `changed` say that they are of an earlier source."""
    rows = []
    for component, result in results.items():
        counts = Counter(result.outcomes.values())
        score = 100 * result.noticed / max(result.built - result.equivalent, 1)
        name = f"`{component}`" + ", an earlier source" * (component in changed)
        rows.append(
            f"| {name} | {result.places} | {len(result.outcomes)} | {counts['refused']} | {counts['failed']} "
            f"| {counts['raised'] + counts['timed out']} | {result.equivalent} "
            f"| {len(result.survivors) - result.equivalent} | {score:.0f} % |"
        )
    header = (
        "| file | mutants | sample | not built | noticed by an assertion | by an exception or the time | equivalent "
        "| missed | noticed of those that differ |"
    )
    survivors = [
        f"| `{component}` | {cell(one.original)} | {cell(one.wrong)} "
        f"| {'' if one.equivalent else 'Missed: '}{one.reason} |"
        for component, result in results.items()
        for one in result.survivors.values()
    ]
    return "\n".join(
        [
            header,
            "|---" * 9 + "|",
            *rows,
            "",
            "| file | in the source | in the mutant | why no test notices it |",
            "|---|---|---|---|",
            *survivors,
        ]
    )
