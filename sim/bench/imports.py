"""The graph of package imports: `python -m sim.bench.imports` prints it as docs/design.md shows it.

A package is a folder of modules. A module directly below `iswitch`, `hw` or `sim` is a node of its own. Imports inside
functions count. The graph is printed without the edges that follow from others, and must have no cycle.
"""

import ast
import itertools
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

__all__ = ["Imports", "imported", "mermaid", "module_name", "read"]

ROOT = Path(__file__).parents[2]
TOPS = ("host/iswitch", "hw", "sim", "examples")
OPEN = {"", "iswitch", "hw", "sim"}
"""Packages whose modules are nodes of their own."""
Imports = dict[str, dict[str, list[str]]]
"""By importing package and imported package: the imports, as "module imports module"."""


def module_name(path: Path) -> str:
    """Return the dotted name of a source file, given relative to the checkout."""
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "host" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str) -> Iterator[str]:
    """Yield the absolute dotted names that a source text imports, wherever in the text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def read(root: Path = ROOT) -> Imports:
    """Read the imports between the packages of a checkout."""
    paths = [path.relative_to(root) for top in TOPS for path in sorted((root / top).rglob("*.py"))]
    files = {module_name(path): path for path in paths}
    packages = {name for name, path in files.items() if path.name == "__init__.py"}

    def package(module: str) -> str:
        above = module.rpartition(".")[0]
        return module if module in packages or above in OPEN else above

    found: Imports = {package(name): {} for name in files}
    for name, path in files.items():
        for target in imported((root / path).read_text(encoding="utf-8")):
            target = target if target in files else target.rpartition(".")[0]
            if target in files and package(target) != package(name):
                found[package(name)].setdefault(package(target), []).append(f"{name} imports {target}")
    return found


def cycle(imports: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    """Return the imports of one cycle of packages, or an empty list if there is none."""
    try:
        TopologicalSorter({name: set(targets) for name, targets in imports.items()}).prepare()
    except CycleError as error:
        around = error.args[1][::-1]  # graphlib lists each node before those that depend on it
        return [imports[a][b][0] for a, b in itertools.pairwise(around)]
    return []


def reduced(imports: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """Return the edges of an acyclic graph without those that follow from others."""
    below: dict[str, set[str]] = {}
    for name in TopologicalSorter({name: set(targets) for name, targets in imports.items()}).static_order():
        below[name] = {far for target in imports[name] for far in (target, *below[target])}
    return {
        name: sorted(target for target in targets if not any(target in below[other] for other in targets))
        for name, targets in imports.items()
    }


def mermaid(imports: Mapping[str, Mapping[str, list[str]]]) -> str:
    """Return the graph in Mermaid's language, packages that import nothing of ours last."""
    edges = reduced(imports)
    order = [*TopologicalSorter(edges).static_order()][::-1]
    lines = [f"    {name} --> {' & '.join(edges[name])}" for name in order if edges[name]]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


if __name__ == "__main__":
    graph = read()
    if around := cycle(graph):
        sys.exit("packages import each other in a cycle:\n" + "\n".join(f"  {one}" for one in around))
    print(mermaid(graph))
