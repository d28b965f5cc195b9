"""The fastest sum tree in software that we know how to write: C++, 16 children to a node, integers, as the gateware's.
Records and weights by numpy.

No library contains it. It shows which share of the libraries' time is the tree's, and is the fair software to compare a
sampler in hardware with.
"""

import ctypes
from ctypes import c_int, c_uint64, c_void_p
from pathlib import Path

import numpy as np

from sim.bench.compiled import BUILD
from sim.bench.replay_buffers import NumpyBuffer
from sim.emulator.toolchain import CXX, digest, made_once, shared

__all__ = ["NativeBuffer", "NativeTree"]

SCALE = float(1 << 20)
"""Of an integer for a priority of 1."""

# Leaves and sums by level, from the leaves up; a level that is 16 or fewer has none above it.
CODE = """
#include <cstdint>
#include <vector>
#define API extern "C" __attribute__((visibility("default")))
struct Tree { uint64_t total = 0; std::vector<std::vector<uint64_t>> levels; };
API void *tree_open(uint64_t capacity) {
    Tree *tree = new Tree();
    tree->levels.emplace_back(capacity);
    while (tree->levels.back().size() > 16) tree->levels.emplace_back((tree->levels.back().size() + 15) / 16);
    return tree;
}
API void tree_close(void *tree) { delete static_cast<Tree *>(tree); }
API uint64_t tree_total(void *tree) { return static_cast<Tree *>(tree)->total; }
API void tree_update(void *opened, const uint64_t *leaves, const uint64_t *priorities, int count) {
    Tree &tree = *static_cast<Tree *>(opened);
    for (int k = 0; k < count; k++) {
        uint64_t at = leaves[k], change = priorities[k] - tree.levels[0][at];
        for (auto &level : tree.levels) { level[at] += change; at >>= 4; }
        tree.total += change;
    }
}
API void tree_find(void *opened, const uint64_t *places, uint64_t *leaves, uint64_t *priorities, int count) {
    Tree &tree = *static_cast<Tree *>(opened);
    for (int k = 0; k < count; k++) {
        uint64_t rest = places[k], at = 0;
        for (auto level = tree.levels.size(); level--;) {
            const uint64_t *sums = tree.levels[level].data();
            for (at <<= 4; rest >= sums[at]; at++) rest -= sums[at];
        }
        leaves[k] = at, priorities[k] = tree.levels[0][at];
    }
}
"""


class NativeTree:
    """As `sim.bench.replay_buffers.SumTree`, but that priorities are rounded to whole 2^-20, and none above 0 to 0."""

    def __init__(self, capacity: int) -> None:
        if capacity < 16 or capacity & (capacity - 1):
            raise ValueError(f"NativeTree capacity must be a power of two from 16, not {capacity!r}")

        def make(work: Path) -> Path:
            (work / "tree.cpp").write_text(CODE)
            return shared(([], CXX, [(work / "tree.cpp", "-O3")], []), work, "tree.so")

        self._library = ctypes.CDLL(str(made_once(BUILD / f"tree-{digest(CODE, *CXX)}.so", make)))
        self._library.tree_open.restype, self._library.tree_open.argtypes = c_void_p, [c_uint64]
        self._library.tree_total.restype, self._library.tree_total.argtypes = c_uint64, [c_void_p]
        self._library.tree_close.restype, self._library.tree_close.argtypes = None, [c_void_p]
        self._library.tree_update.argtypes = [c_void_p, c_void_p, c_void_p, c_int]
        self._library.tree_find.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p, c_int]
        self._tree = self._library.tree_open(capacity)
        self.capacity, self.found = capacity, np.empty(0, np.uint64)

    def __del__(self) -> None:
        if hasattr(self, "_tree"):
            self._library.tree_close(self._tree)

    @property
    def total(self) -> float:
        return float(self._library.tree_total(self._tree)) / SCALE

    def update(self, leaves: np.ndarray, priorities: np.ndarray) -> None:
        """IndexError if there is no such leaf."""
        leaves = np.ascontiguousarray(leaves, np.uint64)
        if leaves.size and leaves.max() >= self.capacity:
            raise IndexError(f"NativeTree leaf must be 0 to {self.capacity - 1}, not {leaves.max()}")
        whole = np.maximum(np.rint(priorities * SCALE), priorities > 0).astype(np.uint64)
        self._library.tree_update(self._tree, leaves.ctypes.data, whole.ctypes.data, leaves.size)

    def find(self, places: np.ndarray) -> np.ndarray:
        """`priorities` tells those of the leaves found last. ValueError if all priorities are 0."""
        total = self._library.tree_total(self._tree)
        if not total:
            raise ValueError("find must come after priorities above 0, not before")
        # What is rounded may be the total itself.
        whole = np.minimum((places * SCALE).astype(np.uint64), np.uint64(total - 1))
        leaves, self.found = np.empty_like(whole), np.empty_like(whole)
        self._library.tree_find(self._tree, whole.ctypes.data, leaves.ctypes.data, self.found.ctypes.data, whole.size)
        return leaves

    def priorities(self, leaves: np.ndarray) -> np.ndarray:
        """Of leaves as `find` has just found them."""
        return self.found / SCALE


class NativeBuffer(NumpyBuffer):
    """See `Buffer`."""

    def __init__(self, capacity: int, record_bytes: int) -> None:
        super().__init__(capacity, record_bytes, tree=NativeTree(capacity))
