"""The tests that docs/security.md names exist."""

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


def test_every_test_of_the_security_page_exists():
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert len(NAMED.findall(page)) >= 18
    assert missing(page) == []


@pytest.mark.parametrize("name", ["tests/test_security_page.py::test_of_yesterday", "tests/no_such_file.py::test_a"])
def test_a_test_that_does_not_exist_is_noticed(name):
    assert missing(f"| an attack | a law | `{name}` |") == [name]
