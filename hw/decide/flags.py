"""Conditions in registers, by their names."""

from types import SimpleNamespace

from amaranth.hdl import Signal

__all__ = ["flags"]


def flags(*names: str) -> SimpleNamespace:
    """A signal of one bit for each."""
    return SimpleNamespace(**{name: Signal(name=name) for name in names})
