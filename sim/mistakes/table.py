"""docs/mistakes.md: every mistake, the message it got, and what helps."""

import re

from sim.mistakes import collectives, commands, failures, starting
from sim.mistakes.stage import Mistake

__all__ = ["SECTIONS", "text"]

SECTIONS = {
    "Starting": starting.MISTAKES,
    "Collectives": collectives.MISTAKES,
    "Workers and switches that stop": failures.MISTAKES,
    "Commands": commands.MISTAKES,
}

_HEAD = """\
# What I did, what it said, what helps

The commonest mistakes. `python -m sim.mistakes > docs/mistakes.md` makes each of them at the emulated switch, most of them in virtual time, and
writes this file; a test compares. `+N` stands for the rise of a counter of the switch. `iswitch doctor` and `iswitch counters` show all counters.
"""


def text() -> str:
    """Make all mistakes, and return the document."""
    return "\n".join([_HEAD, *(_section(name, mistakes) for name, mistakes in SECTIONS.items())])


def _section(name: str, mistakes: list[Mistake]) -> str:
    rows = [f"| {_cell(each.did)} | {_message(each.make())} | {_cell(each.helps)} |" for each in mistakes]
    return "\n".join([f"## {name}", "", "| What I did | What it said | What helps |", "|---|---|---|", *rows, ""])


def _message(said: str) -> str:
    kind, colon, rest = said.partition(": ")
    return f"**{kind}**: {_cell(rest)}" if colon and kind.isidentifier() else _cell(said)


def _cell(words: str) -> str:
    """Text within a cell of a table. The counts of counters, which depend on times, become N."""
    words = re.sub(r"\b([A-Z][A-Z_]+) \+\d+", r"\1 +N", words)
    return words.strip().replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")
