"""The graph of package imports: a cycle is named by its imports, and edges that follow from others are left out."""

import pytest

from sim.bench.imports import cycle, imported, mermaid, module_name, read, reduced


@pytest.fixture
def checkout(tmp_path):
    """`checkout({path: text})`: the imports of these files."""

    def make(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            for folder in path.parents:
                if folder not in tmp_path.parents and folder != tmp_path and folder.name != "host":
                    (folder / "__init__.py").touch()
        return read(tmp_path)

    return make


def test_imports_are_seen_wherever_they_stand():
    text = "import a.b as c\nfrom d import e\ndef f():\n    from g.h import i, j\nfrom . import k\n"
    assert list(imported(text)) == ["a.b", "d.e", "g.h.i", "g.h.j"]


def test_packages_are_folders_and_modules_at_the_top_stand_alone(checkout):
    graph = checkout(
        {
            "host/iswitch/errors.py": "",
            "host/iswitch/wire/frame.py": "from iswitch.errors import X",
            "hw/decide/core.py": "from iswitch.wire.frame import Y\nfrom hw.decide import ring",
            "hw/decide/ring.py": "",
        }
    )
    assert graph["hw.decide"] == {"iswitch.wire": ["hw.decide.core imports iswitch.wire.frame"]}
    assert graph["iswitch.wire"] == {"iswitch.errors": ["iswitch.wire.frame imports iswitch.errors"]}
    assert cycle(graph) == []


def test_a_cycle_is_named_by_its_imports(checkout):
    graph = checkout(
        {
            "hw/a/one.py": "from hw.b.two import x",
            "hw/b/two.py": "def f():\n    import hw.c.three",
            "hw/c/three.py": "from hw.a import one",
        }
    )
    assert sorted(cycle(graph)) == [
        "hw.a.one imports hw.b.two",
        "hw.b.two imports hw.c.three",
        "hw.c.three imports hw.a.one",
    ]


def test_an_edge_that_follows_from_others_is_not_drawn():
    graph = {"a": {"b": ["a imports b"], "c": ["a imports c"]}, "b": {"c": ["b imports c"]}, "c": {}}
    assert reduced(graph) == {"a": ["b"], "b": ["c"], "c": []}
    assert mermaid(graph) == "```mermaid\ngraph TD\n    a --> b\n    b --> c\n```"


def test_names_of_modules(tmp_path):
    assert module_name(tmp_path.relative_to(tmp_path) / "host/iswitch/wire/__init__.py") == "iswitch.wire"
