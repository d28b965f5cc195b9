"""docs/mistakes.md: each mistake, its message, and the remedy."""

import re

from sim.mistakes import collectives, commands, failures, starting
from sim.mistakes.scenario import Mistake

__all__ = ["SECTIONS", "text"]

SECTIONS = {
    "Starting": starting.MISTAKES,
    "Collectives": collectives.MISTAKES,
    "Workers and switches that stop": failures.MISTAKES,
    "Commands": commands.MISTAKES,
}

_HEAD = """\
# Common mistakes, their messages, and remedies

`python -m sim.mistakes > docs/mistakes.md` makes each mistake at the emulated switch, most of them in virtual time, and
writes this page; a test compares. `+N` stands for the rise of a counter of the switch. `iswitch doctor` and `iswitch
counters` show all counters.
"""


def text() -> str:
    """Make all mistakes, and return the page."""
    return "\n".join([_HEAD, *(_section(name, mistakes) for name, mistakes in SECTIONS.items())])


def _section(name: str, mistakes: list[Mistake]) -> str:
    rows = [f"| {_cell(each.action)} | {_message(each.provoke())} | {_cell(each.remedy)} |" for each in mistakes]
    return "\n".join([f"## {name}", "", "| Mistake | Message | Remedy |", "|---|---|---|", *rows, ""])


def _message(text: str) -> str:
    kind, colon, rest = text.partition(": ")
    return f"**{kind}**: {_cell(rest)}" if colon and kind.isidentifier() else _cell(text)


def _cell(words: str) -> str:
    """Return text for a cell of a table. Counts of counters depend on times, so they become N."""
    words = re.sub(r"\b([A-Z][A-Z_]+) \+\d+", r"\1 +N", words)
    return words.strip().replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")
