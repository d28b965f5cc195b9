"""What checks must fail on: modules with one slip in them, and rules that an explorer must find wrong."""

import inspect
from collections.abc import Callable
from types import ModuleType

from sim.model.search import Violation

__all__ = ["broken_promise", "mutant"]


def mutant(module: ModuleType, sound: str, wrong: str) -> ModuleType:
    """A copy of the module in which `sound` reads `wrong`. ValueError unless it stands there exactly once."""
    source = inspect.getsource(module)
    if source.count(sound) != 1:
        raise ValueError(f"a mutant must name one place of {module.__name__}, but {sound!r} stands there {source.count(sound)} times")
    made = ModuleType("mutant")
    exec(compile(source.replace(sound, wrong), f"mutant of {module.__name__}", "exec"), made.__dict__)
    return made


def broken_promise(run: Callable[[], object]) -> str:
    """Which one `run` of an explorer ends with; empty if all are kept."""
    try:
        run()
    except Violation as found:
        return found.promise
    return ""
