"""The rules of the house that a machine can check: who imports whom, tests where they belong, one truth in the docs."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest

from iswitch.wire import (
    ACK,
    CONTROL,
    HEADER,
    JOB_VIEW,
    MAGIC,
    MEMBER_VIEW,
    SLOT_VIEW,
    Action,
    ContributionFlag,
    Format,
    Outcome,
    PortCounter,
    Reason,
    Register,
    ResultFlag,
    Stat,
    Type,
    have_view_register,
    job_view_register,
    member_view_register,
    port_counter_register,
    slot_view_register,
)
from sim.bench import imports, page_runs, tiers
from sim.bench.page_commands import commands, programs

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for top in ("host/iswitch", "hw", "sim", "examples") for path in (ROOT / top).rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROTOCOL = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")

UNTESTED: dict[str, str] = {
    "hw/numeric/fp32.py": "its stages mean something only as a lane: tests/hw/numeric/test_lane.py",
    "hw/numeric/window64.py": "its stages mean something only as a lane: tests/hw/numeric/test_lane.py",
}
"""Gateware without a test of its own name, and why."""


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def breaches(under: str, *forbidden: str) -> list[str]:
    return [
        f"{short(path)} imports {name}"
        for path in SOURCES
        if short(path).startswith(under)
        for name in imports.imported(path.read_text(encoding="utf-8"))
        if any(name == far or name.startswith(far + ".") for far in forbidden)
    ]


def test_the_driver_imports_neither_gateware_nor_simulation():
    assert breaches("host/iswitch/", "hw", "sim", "amaranth", "examples", "tests") == []


def test_examples_import_neither_gateware_nor_simulation():
    """And only the demos and the virtual cluster import the examples."""
    assert breaches("examples/", "hw", "sim", "amaranth", "tests") == []
    assert breaches("hw/", "examples") == []
    users = {breach.partition(" ")[0] for breach in breaches("sim/", "examples")}
    assert {name for name in users if not name.startswith(("sim/demo", "sim/cluster/"))} == set()


def test_golden_models_import_no_gateware():
    assert breaches("host/iswitch/golden/", "hw", "amaranth", "sim.bench", "sim.emulator") == []


def test_gateware_imports_no_simulation():
    assert breaches("hw/", "sim", "tests") == []


def test_the_import_rule_sees_a_breach(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("def f():\n    from hw.decide import core\n    import amaranth.hdl as hdl\n")
    assert list(imports.imported(path.read_text())) == ["hw.decide.core", "amaranth.hdl"]


def test_packages_import_each_other_in_no_cycle():
    assert imports.cycle(imports.read()) == []


def test_docs_show_the_import_graph():
    """If this fails: `python -m sim.bench.imports` prints what docs/design.md should show."""
    assert imports.mermaid(imports.read()) in (ROOT / "docs/design.md").read_text(encoding="utf-8")


def bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names that a module's own statements bind."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, (ast.If, ast.Try)):
            parts = [node.body, node.orelse, *(handler.body for handler in getattr(node, "handlers", []))]
            yield from (name for part in parts for name in bound(part))


def exports(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return []


def wrong_exports(tree: ast.Module) -> list[str]:
    """Names in `__all__` that the module does not bind, or lists twice."""
    names = exports(tree)
    lazy = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} & {"__getattr__"}
    unbound = set() if lazy else set(names) - set(bound(tree.body))
    return sorted(unbound | {name for name in names if names.count(name) > 1})


def test_all_resolves():
    wrong = {short(path): wrong_exports(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_a_name_that_is_not_bound_is_noticed():
    assert wrong_exports(ast.parse("__all__ = ['a', 'b', 'b', 'c']\na = b = 1\n")) == ["b", "c"]


def unexported(paths: dict[str, Path]) -> list[str]:
    """Names that a module imports from another one whose `__all__` lacks them. `paths`: by the module's name."""
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in paths.items()}
    return [
        f"{name} imports {alias.name} of {node.module}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees and exports(trees[node.module])
        for alias in node.names
        if f"{node.module}.{alias.name}" not in trees and alias.name not in exports(trees[node.module])
    ]


def test_all_is_complete():
    assert unexported({imports.module_name(path.relative_to(ROOT)): path for path in SOURCES}) == []


@pytest.mark.mutant
def test_a_name_that_is_not_exported_is_noticed(tmp_path):
    (tmp_path / "a.py").write_text("__all__ = ['x']\nx = y = 1\n")
    (tmp_path / "b.py").write_text("from a import x, y\n")
    assert unexported({name: tmp_path / f"{name}.py" for name in "ab"}) == ["b imports y of a"]


def computes(path: Path) -> bool:
    """Return True for a file of gateware that has a component or a state machine."""
    text = path.read_text(encoding="utf-8")
    return "m.FSM(" in text or any(
        isinstance(node, ast.FunctionDef) and node.name == "elaborate" for node in ast.walk(ast.parse(text))
    )


def test_gateware_has_tests_at_the_mirrored_path():
    components = [path.relative_to(ROOT) for path in SOURCES if short(path).startswith("hw/") and computes(path)]
    missing = [
        path.as_posix()
        for path in components
        if path.as_posix() not in UNTESTED and not (ROOT / "tests" / path.parent / f"test_{path.name}").exists()
    ]
    assert missing == []


def test_exceptions_are_still_needed():
    for name in UNTESTED:
        assert (ROOT / name).exists()
        assert not (ROOT / "tests" / name).with_name(f"test_{Path(name).name}").exists()


def unmarked(text: str) -> list[str]:
    """Tests that seed a bug with `mutant(...)`, and do not bear the marker `mutant`."""
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if any(isinstance(call, ast.Call) and ast.unparse(call.func) == "mutant" for call in ast.walk(node))
        if not any("mark.mutant" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def test_mutants_bear_their_marker():
    own = ROOT / "tests/sim/bench/test_mutant.py"
    wrong = {
        short(path): unmarked(path.read_text(encoding="utf-8"))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != own
    }
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.mutant
def test_a_mutant_without_its_marker_is_noticed():
    assert unmarked("def test_a():\n    mutant(x, 'a', 'b')\n@pytest.mark.mutant\ndef test_b():\n    mutant()\n") == [
        "test_a"
    ]


PAST = re.compile(
    r"\b(we began|at first we|first draft|first design|was simplified|used to be|formerly|in an earlier version|"
    r"was tried|were tried|turned out|has been replaced|took apart|is gone now|we learnt)\b",
    re.IGNORECASE,
)
"""Phrases that tell how the code came to be. The CHANGELOG is the place for that."""


def test_pages_say_what_is_and_not_how_it_came_to_be():
    assert [
        f"{short(page)}:{number}: {found.group()}"
        for page in PAGES
        for number, row in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if (found := PAST.search(row))
    ] == []


def missing_places(text: str) -> list[str]:
    """Paths and modules of ours that a page names, and that do not exist."""
    paths = re.findall(r"`((?:hw|sim|host|tests|examples|tools|constraints|docs)/[\w./*]*)`", text)
    modules = re.findall(r"python -m ((?:hw|sim|iswitch|examples)(?:\.\w+)*)", text)
    files = {name: ROOT / ("host" if name.startswith("iswitch") else "") / name.replace(".", "/") for name in modules}
    return [path for path in paths if not any(ROOT.glob(path.rstrip("/")))] + [
        name
        for name, path in files.items()
        if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists()
    ]


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_places_that_a_page_names_exist(page):
    assert missing_places(page.read_text(encoding="utf-8")) == []


@pytest.mark.mutant
def test_a_place_that_does_not_exist_is_noticed():
    text = "`hw/decide/` `hw/nowhere/core.py` `tests/*/test_no.py` `python -m sim.nothing` and `python -m sim.mistakes`"
    assert missing_places(text) == ["hw/nowhere/core.py", "tests/*/test_no.py", "sim.nothing"]


def test_every_program_of_a_page_is_run_by_a_test_or_has_a_reason():
    """If this fails: `sim/bench/page_runs.py` needs a short run of the program, a test that runs it, or a reason."""
    named = {
        name for page in PAGES for one in commands(page.read_text(encoding="utf-8")) for name in programs(one.text)
    }
    ways = [page_runs.SHORT_RUNS, page_runs.TESTED, page_runs.NOT_RUN]
    assert sorted(name for way in ways for name in way) == sorted(named)


@pytest.mark.parametrize("name", page_runs.TESTED)
def test_the_test_that_runs_a_program_exists(name):
    path, _, function = page_runs.TESTED[name].partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert f"\ndef {function}(" in text and re.split(r"[ .]", name)[-1] in text


def test_docs_list_the_programs_that_no_test_runs():
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    table = page.partition("| program | why no test runs it |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == page_runs.listed()


def test_no_package_under_tests():
    """A lone tests/hw/__init__.py would shadow the real `hw`."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def tracked() -> list[Path]:
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_no_paths_of_one_machine():
    local = re.compile(rb"(?<![\w.\-}])/(?:work|home|root|Users|tmp/env|mnt)/[\w.]")
    assert [
        f"{short(path)}: {found.group().decode()}" for path in tracked() if (found := local.search(path.read_bytes()))
    ] == []


def installs(text: str) -> list[str]:
    """What a text tells pip to install by a name that is another project's on the package index."""
    return re.findall(r"pip3? install\b[^\n`]*?(?<![\w./-])iswitch(?![\w-])[^\n`]*", text)


def test_no_text_installs_another_projects_iswitch():
    """On the package index the name `iswitch` is somebody else's; ours is `iswitch-rl`."""
    own = Path(__file__).resolve()
    assert [
        f"{short(path)}: {found}"
        for path in tracked()
        if path.resolve() != own
        for found in installs(path.read_bytes().decode(errors="replace"))
    ] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("pip install iswitch", 1),
        ("pip install 'iswitch[cli]'", 1),
        ('pip install -U "iswitch[plan]"', 1),
        ("python -m pip install numpy iswitch", 1),
        ("pip install 'iswitch-rl[cli]'", 0),
        ("pip install '.[cli]' for the command `iswitch`", 0),
        ("pip install ./iswitch", 0),
        ("import iswitch", 0),
    ],
)
def test_a_text_that_installs_it_is_seen(text, count):
    assert len(installs(text)) == count


# The numbers in docs/protocol.md


def numbered(text: str) -> dict[str, int]:
    """`3 SOME_NAME` in running text or a table."""
    return {name: int(number) for number, name in re.findall(r"\b(\d+) ([A-Z][A-Z_0-9]+)\b", text)}


def line(start: str) -> str:
    (found,) = [row for row in PROTOCOL.splitlines() if row.startswith(start)]
    return found


def table(header: str) -> str:
    """Return the table, or the paragraph, of the page that begins with `header`."""
    return PROTOCOL[PROTOCOL.index(header) :].partition("\n\n")[0]


def values(kind: type[IntEnum]) -> dict[str, int]:
    return {name: int(entry) for name, entry in kind.__members__.items()}


def test_docs_types_and_formats():
    assert numbered(table("Types:")) == values(Type)
    formats = re.findall(r"(\d) `(\w+)`", line("Formats:"))
    assert {name.upper(): int(number) for number, name in formats} == values(Format)


def test_docs_flags():
    """`Flags of a contribution or receipt (...): 1 retransmission, ... Flags of a result: 1 partial (...), ...`."""
    paragraph = PROTOCOL[PROTOCOL.index("Flags of a contribution") : PROTOCOL.index("Payloads:")]
    ours, result = re.sub(r"\([^)]*\)", "", paragraph).split("Flags of a result")
    for text, kind in ((ours, ContributionFlag), (result, ResultFlag)):
        listed = {"_".join(name.split()).upper(): int(number) for number, name in re.findall(r"(\d)\s+([a-z_]+)", text)}
        assert listed == values(kind)


def test_docs_outcomes():
    assert numbered(line(f"| {Register.OUTCOMES} + k |")) == values(Outcome)


def test_docs_stats():
    meaning = {
        Stat.RESULTS: "results completed",
        Stat.RESENT: "results resent",
        Stat.FORCED: "slots completed without a sum of their last frame",
        Stat.NOTICES: "notices sent",
        Stat.NOTICES_SUPPRESSED: "notices suppressed",
        Stat.TERMS_FLUSHED: "non-zero terms that rounded to zero",
        Stat.EVICTED: "members evicted",
        Stat.ADMITTED: "joining members admitted",
        Stat.REPLAY_DROPPED: "requests of the replay service dropped at a full queue",
        Stat.SATURATED: "priorities above the maximum",
        Stat.MEMORY_ERRORS: "errors reported by the replay service's memory",
        Stat.CORRUPT_SUMS: "words of sums and contributions read with a bit error",
        Stat.CORRUPT_PRIORITIES: "words of priorities and their sums read with a bit error",
        Stat.CORRUPT_JOBS: "jobs ended because a row about them had a bit error",
        Stat.CORRUPT_REPLAY: "other words of the replay service read with a bit error",
    }
    assert line(f"| {Register.STATS} + k |") == (
        f"| {Register.STATS} + k | " + ", ".join(f"{stat.value} {meaning[stat]}" for stat in Stat) + " |"
    )


def test_docs_port_counters():
    row = line(f"| {Register.PORT_COUNTERS} + 16 p + k |")
    assert port_counter_register(1, PortCounter(0)) == Register.PORT_COUNTERS + 16
    for counter, meaning in {
        PortCounter.RX_ERROR: "frames with a bad FCS",
        PortCounter.RX_RUNT: "runts",
        PortCounter.RX_OVERSIZE: "oversize",
        PortCounter.TX_FRAMES: "frames sent",
        PortCounter.RX_FRAMES: "frames received whole",
        PortCounter.TX_AGED: "ordinary frames discarded for their age",
        PortCounter.TX_LINK_DOWN: "frames discarded because the link was down",
        PortCounter.RX_OVERFLOW: "frames without room in the port's ingress queue",
        PortCounter.TX_WAIT_RESULT: "results that had to wait for room",
        PortCounter.TX_EXPIRED_RESULT: "results and copies of results that expired before they could leave",
    }.items():
        assert f"{counter.value} {meaning}" in row
    drops = (PortCounter.TX_DROP_GRANT, PortCounter.TX_DROP_REPLY, PortCounter.TX_DROP_ORDINARY)
    assert [int(counter) for counter in drops] == [3, 4, 5]
    assert "3 to 5 GRANTs, replies, ordinary frames dropped" in row


def test_docs_first_registers():
    rows = re.findall(r"^\| (\d)(?:, (\d))? \| (.*) \|$", PROTOCOL[PROTOCOL.index("## 5.") :], re.MULTILINE)
    listed = {int(number): text for first, second, text in rows for number in (first, second) if number}
    meaning = {
        Register.MAGIC: f"{MAGIC:#010x}",
        Register.VERSION: "version",
        Register.PORTS: "ports",
        Register.BUS_BITS: "bus width",
        Register.MEMBERS: "members",
        Register.JOBS: "jobs",
        Register.WINDOW: "window",
        Register.ELEMENTS: "elements",
    }
    assert listed.keys() == meaning.keys()
    assert all(word in listed[register] for register, word in meaning.items())


def test_docs_reasons():
    rows = re.findall(r"^\| (\d+) \| ([A-Za-z_]+)", table("| reason | name | sent in |"), re.MULTILINE)
    assert [(name.upper(), int(number)) for number, name in rows] == sorted(
        values(Reason).items(), key=lambda reason: reason[1]
    )


def test_docs_actions():
    assert {
        name: int(number) for number, name in re.findall(r"^- \*\*(\d) (\w+)\*\*", PROTOCOL, re.MULTILINE)
    } == values(Action)


def test_docs_header():
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (\w+) \| [^|]*\|$", table("| offset | size | field | meaning |"), re.MULTILINE
    )
    assert [(int(at), int(size), name) for at, size, name in rows] == [
        (HEADER.fields[name][1], HEADER.fields[name][0].itemsize, name) for name in HEADER.names
    ]


def test_docs_control_and_ack():
    for record, name in ((CONTROL, "CONTROL"), (ACK, "ACK")):
        rows = re.findall(r"^\| (\d+) \| (\d+) \| [^|]+ \|$", table(f"| offset | size | {name} |"), re.MULTILINE)
        listed = [(int(at), int(size)) for at, size in rows]
        assert listed == [(record.fields[name][1], record.fields[name][0].itemsize) for name in record.names]


def test_docs_views():
    for kind, record in (("job", JOB_VIEW), ("member", MEMBER_VIEW), ("slot", SLOT_VIEW)):
        rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \|", table(f"| field of a {kind} |"), re.MULTILINE)
        assert [(name, int(at), int(size)) for name, at, size in rows] == [
            (name, record.fields[name][1], record.fields[name][0].itemsize) for name in record.names
        ]
    assert line("| 1024 + 16 j |") and job_view_register(3) == 1024 + 16 * 3
    assert line("| 2048 + 32 j + m |") and have_view_register(3, 5) == 2048 + 32 * 3 + 5
    assert line("| 4096 + 256 j + 8 m |") and member_view_register(3, 5) == 4096 + 256 * 3 + 8 * 5
    assert line("| 2^20 + 65536 j + 8 s |") and slot_view_register(3, 5) == 2**20 + 65536 * 3 + 8 * 5


# The tiers in docs/testing.md


def test_docs_name_what_only_the_long_tier_notices(long_only, whole_suite):
    """If this fails: `python -m pytest -q --list-long-only` prints what docs/testing.md should say."""
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8").splitlines()
    listed = tiers.listed(long_only)
    if whole_suite:
        assert [row for row in page if row.startswith("- `tests/")] == listed
    else:
        assert set(listed) <= set(page)
