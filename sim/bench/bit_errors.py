"""Bit errors in the memories of a component that Amaranth's simulator runs."""

from typing import Any

from amaranth.hdl import Value
from amaranth.lib.memory import Memory

__all__ = ["flip", "keep_memories"]


def keep_memories(monkeypatch: Any, *modules: Any) -> list[Memory]:
    """Return a list to which each memory is appended that components of these modules make from now on."""
    memories: list[Memory] = []

    def make(**options: Any) -> Memory:
        memories.append(Memory(**options))
        return memories[-1]

    for module in modules:
        monkeypatch.setattr(module, "Memory", make)
    return memories


def flip(ctx: Any, memory: Memory, row: int, bit: int) -> None:
    """Flip a bit of a row. Bits count from the lowest of the row, and wrap."""
    word = Value.cast(memory.data[row])
    ctx.set(word, ctx.get(word) ^ 1 << bit % len(word))
