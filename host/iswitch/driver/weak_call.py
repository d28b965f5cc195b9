"""Calls of a method that do not keep the method's object: of a worker that the program may drop without closing it."""

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["weakly"]

T = TypeVar("T")


def weakly(method: Callable[..., T], otherwise: T) -> Callable[..., T]:
    """Return a function that calls a bound method as long as the method's object exists.

    Parameters
    ----------
    method : bound method
        The method.
    otherwise : object
        What the function returns when the object is gone.
    """
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> T:
        bound = reference()
        return otherwise if bound is None else bound(*arguments)

    return call
