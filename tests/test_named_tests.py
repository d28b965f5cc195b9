"""The tests that docs/security.md and docs/ethernet.md name exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def missing(page: str) -> list[str]:
    """Return the tests that a page names and that do not exist."""
    functions: dict[str, set[str]] = {}
    for path, _ in NAMED.findall(page):
        if path not in functions and (ROOT / path).exists():
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            functions[path] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return [f"{path}::{name}" for path, name in NAMED.findall(page) if name not in functions.get(path, ())]


@pytest.mark.parametrize("page", ["security", "ethernet"])
def test_every_test_that_a_page_names_exists(page):
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    assert len(NAMED.findall(text)) >= 18
    assert missing(text) == []


@pytest.mark.parametrize("name", ["tests/test_named_tests.py::test_of_yesterday", "tests/no_such_file.py::test_a"])
def test_a_test_that_does_not_exist_is_noticed(name):
    assert missing(f"| an attack | a law | `{name}` |") == [name]
