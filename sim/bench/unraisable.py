"""Errors that Python cannot raise, because they happen while the garbage collector discards an object.

pytest formats the traceback of each, which parses source; Python 3.11 cannot parse within `ast.parse`. A test that
calls `ast.parse` therefore failed when the collector discarded a simulation in the middle of the call.
"""

from collections.abc import Callable
from typing import Any

Hook = Callable[[Any], object]
"""What `sys.unraisablehook` is: called with the error's `exc_value` and more."""


def is_discarded_testbench(error: BaseException | None) -> bool:
    """A simulation was discarded while a testbench awaited `until`: Amaranth closes a generator that still runs."""
    return isinstance(error, RuntimeError) and str(error).startswith("aclose(): asynchronous generator")


def without_discarded_testbenches(hook: Hook) -> Hook:
    """A hook that passes every error on to `hook`, except those of discarded testbenches."""

    def pass_on(unraisable: Any) -> None:
        if not is_discarded_testbench(unraisable.exc_value):
            hook(unraisable)

    return pass_on
