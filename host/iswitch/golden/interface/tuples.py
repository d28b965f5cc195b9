"""Tuples as immutable rows: the models are pure functions, so a changed row is a new one."""

from typing import Any

__all__ = ["replace_at"]


def replace_at(row: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return the row with another value at an index."""
    return row[:index] + (value,) + row[index + 1 :]
