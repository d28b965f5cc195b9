"""The compiled library of the replay client's usual cases, if there is one."""

import logging
from functools import cache
from typing import Any

from iswitch.native.loader import LibraryError, library

__all__ = ["compiled_library"]

_log = logging.getLogger(__name__)


@cache
def compiled_library() -> Any:
    """Return the library, or None if there is none."""
    try:
        return library()
    except LibraryError as error:
        _log.info("the replay client runs in Python alone, which takes more processor time: %s", error)
        return None
