"""`python -m sim.bench.counted_figures`: writes figures that do not depend on the machine into docs/results.md.

These are what `make bench` counts in clock cycles, or computes by a model. A row of a table there is generated if its
first cell names keys of these figures, between backquotes; `*` stands for one part of a key. Its last cell then has
their values, in the order of the keys, or one value if all are equal.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import typer
from rich.console import Console

from sim.bench.bench import MEASUREMENTS, shown

__all__ = ["COUNTED", "PAGE", "TIMED", "keys_of", "measured", "renewed", "require_known"]

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
TIMED = ("compare", "driver.", "emulator.", "replay.baselines", "replay.torchrl")
"""How keys begin whose figures depend on the machine."""
COUNTED = [name for name in MEASUREMENTS if not name.startswith(TIMED)]
"""Measurements whose figures are the same on every machine."""


def keys_of(row: str) -> list[str]:
    """Return the keys of counted figures, or patterns of them, that the first cell of a table's row names."""
    if not row.startswith("|"):
        return []
    return [key for key in re.findall(r"`([\w.*]+)`", row.split("|")[1]) if is_counted(key)]


def is_counted(key: str) -> bool:
    return not key.startswith(TIMED) and key.split(".")[0] in {name.split(".")[0] for name in COUNTED}


def renewed(page: str, figures: Mapping[str, float]) -> str:
    """Return the page with the values of these figures. Rows with other keys stay.

    Parameters
    ----------
    page : str
        Markdown.
    figures : mapping of str to float
        Values by key, in the order in which they were measured.
    """
    return "\n".join(renewed_row(line, figures) for line in page.split("\n"))


def renewed_row(row: str, figures: Mapping[str, float]) -> str:
    found = [[shown(value) for key, value in figures.items() if is_matched(key, pattern)] for pattern in keys_of(row)]
    if not found or not all(found):
        return row
    values = [value for each in found for value in each]
    return "|".join([*row.split("|")[:-2], f" {'; '.join(values if len(set(values)) > 1 else values[:1])} ", ""])


def is_matched(key: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]*"), key) is not None


def measured(names: Iterable[str], console: Console) -> dict[str, float]:
    """Measure, and return the values by key."""
    figures: dict[str, float] = {}
    for name in names:
        console.print(f"[dim]{name} ...", highlight=False)
        figures |= {figure.key: figure.value for figure in MEASUREMENTS[name](False) if figure.value is not None}
    return figures


def require_known(page: str, figures: Mapping[str, float]) -> None:
    """Raise ValueError if a row names a key that is not among all counted figures."""
    for row in page.split("\n"):
        for pattern in keys_of(row):
            if not any(is_matched(key, pattern) for key in figures):
                raise ValueError(f"docs/results.md: `make bench` has no figure {pattern}, which is in the row {row!r}")


def main() -> None:
    """Write the counted figures into docs/results.md."""
    console, page = Console(), PAGE.read_text(encoding="utf-8")
    figures = measured(COUNTED, console)
    require_known(page, figures)
    new = renewed(page, figures)
    PAGE.write_text(new, encoding="utf-8")
    changed = [row for row, before in zip(new.split("\n"), page.split("\n"), strict=True) if row != before]
    console.print("\n".join(changed) or "nothing has changed", markup=False, highlight=False)


if __name__ == "__main__":
    typer.run(main)
