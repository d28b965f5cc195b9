"""The table of resource utilisation in docs/boards.md, with which a test compares the present counts."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

__all__ = ["BEGIN", "COLUMNS", "END", "TABLE", "TOLERANCE", "differences", "read", "update"]

TABLE = Path(__file__).parents[2] / "docs" / "boards.md"
BEGIN, END = "<!-- counts: python -m hw.board.utilisation --update -->", "<!-- end of counts -->"
COLUMNS = ("LUT", "FF", "RAMB36", "RAMB18", "URAM", "DSP", "levels")
TOLERANCE = 0.05
"""Relative change of a count above which its row must be renewed."""


def read(path: Path | None = None) -> dict[str, dict[str, int]]:
    """Return the rows by design. Raises ValueError if there is no table, or a row does not consist of numbers."""
    _, rows, _ = parts((path or TABLE).read_text(encoding="utf-8"))
    found = {}
    for line in rows.strip().splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
        if len(cells) != len(COLUMNS) or not all(re.fullmatch(r"[\d,]+", cell) for cell in cells):
            raise ValueError(f"a row of the table of counts must be a name and {len(COLUMNS)} numbers, not {line!r}")
        found[name] = {column: int(cell.replace(",", "")) for column, cell in zip(COLUMNS, cells, strict=True)}
    return found


def update(counted: Mapping[str, Mapping[str, int]], path: Path | None = None, *, order: Collection[str] = ()) -> None:
    """Write rows in `order`, with all other rows last."""
    path = path or TABLE
    before, _, after = parts(path.read_text(encoding="utf-8"))
    rows = read(path) | {name: {column: one[column] for column in COLUMNS} for name, one in counted.items()}
    names = [*(name for name in order if name in rows), *(name for name in rows if name not in order)]
    lines = [
        f"| design | {' | '.join(COLUMNS)} |",
        "|---" * (1 + len(COLUMNS)) + "|",
        *(f"| {name} | {' | '.join(f'{rows[name][column]:,}' for column in COLUMNS)} |" for name in names),
    ]
    path.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")


def parts(text: str) -> tuple[str, str, str]:
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"docs/boards.md must have one table of counts, between {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    rows, _, after = rest.partition(END)
    return before, rows, after


def differences(name: str, counted: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
    """Return a sentence for each count that differs from the expected one by more than TOLERANCE. Levels may not differ
    at all."""
    wrong = []
    for column in COLUMNS:
        now, then = counted[column], expected[column]
        if abs(now - then) > (0 if column == "levels" else TOLERANCE * then):
            wrong.append(
                f"{column} of {name} {'grew' if now > then else 'shrank'} from {then:,} to {now:,}; if that is meant: "
                f"python -m hw.board.utilisation --update --only {name}"
            )
    return wrong
