"""Mutants: copies of a module with one seeded bug, and runs of an explorer with a wrong rule."""

import inspect
import itertools
import re
from collections.abc import Callable
from types import ModuleType

from sim.explore.search import Violation

__all__ = ["broken_promise", "mutant"]


def pattern_of(text: str) -> re.Pattern[str]:
    """Return a pattern that finds `text` in Python source, however a formatter has laid that source out.

    White space between two tokens may differ, and so may a comma before a closing bracket.
    """
    tokens = re.findall(r"\w+|[^\w\s]", text)
    parts = [re.escape(tokens[0])]
    for before, token in itertools.pairwise(tokens):
        words = before[-1:].isidentifier() and token[:1].isidentifier()
        comma = r"(?:,\s*)?" if token in ")]}" and before != "," else ""
        parts.append((r"\s+" if words else r"\s*") + comma + re.escape(token))
    lead = r"(?<!\w)" if text[:1].isspace() and re.match(r"\w", tokens[0]) else ""
    return re.compile(lead + "".join(parts))


def mutant(module: ModuleType, original: str, wrong: str) -> ModuleType:
    """Return a copy of `module` in which the source text `original` is replaced by `wrong`.

    Raises
    ------
    ValueError
        If `original` does not stand in the source exactly once. White space and line breaks do not count.
    """
    source = inspect.getsource(module)
    places = list(pattern_of(original).finditer(source))
    if len(places) != 1:
        raise ValueError(
            f"a mutant must name one place of {module.__name__}, but {original!r} stands there {len(places)} times"
        )
    begin, end = places[0].span()
    made = ModuleType("mutant")
    made.__package__ = module.__package__
    changed = source[:begin] + wrong.strip() + source[end:]
    exec(compile(changed, f"mutant of {module.__name__}", "exec"), made.__dict__)
    return made


def broken_promise(run: Callable[[], object]) -> str:
    """Return the promise that `run` of an explorer finds broken, or an empty string."""
    try:
        run()
    except Violation as found:
        return found.promise
    return ""
