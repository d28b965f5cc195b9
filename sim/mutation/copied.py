"""A copy of the checkout in which mutants are written, and what tests in it say. The checkout is not changed.

`python -m sim.mutation.copied` runs in the copy: it loads what the tests need but for what depends on the mutated
file, and then forks a process for each mutant. So a mutant costs its tests and the import of some modules.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sim.bench.imports import module_name

__all__ = ["ROOT", "Copy", "Verdict", "copied"]

ROOT = Path(__file__).parents[2]
MEMORY_BYTES = 8 << 30
"""Address space of a mutant's process: a shift by too many bits would take all."""
SPARE_S = 5
"""Processor seconds that a mutant may take beyond four times those of the source."""
WAITING = 20
"""Seconds that a mutant may take for each processor second that it may: it may wait, or the machine be busy."""


class Verdict(NamedTuple):
    """What the tests said of one source text.

    Attributes
    ----------
    outcome : str
        "passed"; "failed": an assertion of a test failed; "raised": a test ended with another exception; "refused": the
        component could not be built, or its file not be imported; "timed out".
    test : str
        The test that said so, and an empty string if none did.
    message : str
        The first line of the exception.
    processor_s : float
        Processor seconds.
    """

    outcome: str
    test: str
    message: str
    processor_s: float


class Judge:
    """A plugin of pytest: orders the tests, and keeps the first failure.

    The tests that have noticed a mutant come first, the one with the fewest seconds for each mutant before the others.
    The other tests follow, the quickest first.

    Parameters
    ----------
    component : str
        Path of the mutated file.
    durations : dict
        Seconds of each test without a mutant; empty in the first run, which measures them.
    noticed : mapping
        The number of mutants that each test has noticed.
    """

    def __init__(self, component: str, durations: dict[str, float], noticed: Mapping[str, int]):
        self._component = component
        self._known, self._noticed = durations, noticed
        self.durations: dict[str, float] = {}
        self.outcome, self.test, self.message = "passed", "", ""

    def pytest_sessionstart(self):
        """Let Hypothesis look for no smaller example."""
        import hypothesis
        from hypothesis import Phase

        phases = (Phase.explicit, Phase.generate)
        hypothesis.settings.register_profile("mutation", hypothesis.settings.default, phases=phases)
        hypothesis.settings.load_profile("mutation")

    def pytest_collection_finish(self, session):
        """Order the tests."""
        session.items.sort(key=lambda item: self._rank(item.nodeid))

    def _rank(self, test: str) -> tuple[bool, float]:
        noticed = self._noticed.get(test, 0)
        return not noticed, self._known.get(test, 0.0) / max(noticed, 1)

    def pytest_collectreport(self, report):
        if report.failed and self.outcome == "passed":
            self.outcome, self.test, self.message = "refused", report.nodeid, str(report.longrepr)[-200:]

    def pytest_runtest_makereport(self, item, call):
        self.durations[item.nodeid] = self.durations.get(item.nodeid, 0.0) + call.duration
        if call.excinfo is None or self.outcome != "passed" or "Skipped" in call.excinfo.typename:
            return
        frames = [(entry.path, entry.name) for entry in call.excinfo.traceback]
        own = [name for path, name in frames if str(path).endswith(self._component)]
        if call.excinfo.typename in ("AssertionError", "Failed"):
            self.outcome = "failed"
        elif {"elaborate", "<module>"} & set(own) or self._component.startswith("hw/") and "__init__" in own:
            self.outcome = "refused"
        else:
            self.outcome = "raised"
        self.test, self.message = item.nodeid, call.excinfo.exconly().partition("\n")[0][:200]


def run_tests(component: str, tests: Iterable[str], durations: dict[str, float], noticed: Mapping[str, int]) -> Judge:
    """Run tests until one fails, those that seed bugs of their own and the slow ones left out."""
    import pytest

    judge = Judge(component, durations, noticed)
    status = pytest.main(
        ["-x", "-q", "-p", "no:cacheprovider", "--tier", "all", "-m", "not mutant and not slow", *tests],
        plugins=[judge],
    )
    if status and judge.outcome == "passed":  # no test has begun: a conftest.py cannot be imported, for example
        judge.outcome, judge.message = "refused", f"pytest ended with status {int(status)}"
    return judge


def load(modules: Iterable[str], but: str) -> None:
    """Import modules, but neither the one of that name nor those that import it, in whatever way, nor the modules of
    packages that do."""
    loaded: dict[str, Any] = sys.modules
    loaded[but] = None  # its import fails, and with it the import of what needs it
    for name in modules:
        with suppress(Exception):
            __import__(name)
    del loaded[but]
    for name in sorted(loaded):  # a package before its modules
        package = name.rpartition(".")[0]
        if package and package not in loaded:  # its import has failed, and the next one would not bind this module
            del loaded[name]


def forked(work, limit_s: float) -> tuple[int, float, Any]:
    """Do `work` in a process of its own, and return its status, its processor seconds and what it returned, or None."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            os.setpgid(0, 0)
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 2))
            with open(writer, "w") as answer:
                answer.write(json.dumps(work()))
        finally:
            os._exit(0)
    os.close(writer)
    with suppress(OSError):
        os.setpgid(process, process)  # in both processes, since either one may be the first
    ends = time.monotonic() + WAITING * limit_s
    while True:
        ended, status, used = os.wait4(process, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > ends:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # what the tests started and a failure left behind
    with open(reader) as answer:
        text = answer.read()
    return status, used.ru_utime + used.ru_stime, json.loads(text) if text else None


def serve(component: str, tests: list[str]) -> None:
    """Answer each line of the input, a source text as JSON, by a line with its verdict. The first text is sound."""
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.environ.get("MUTATION_LOG", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    durations: dict[str, float] = {}
    noticed: Counter[str] = Counter()
    limit_s = 1800.0

    def work() -> dict:
        judge = run_tests(component, tests, durations, noticed)
        return {
            "verdict": [judge.outcome, judge.test, judge.message],
            "durations": judge.durations,
            "modules": list(sys.modules),
        }

    for line in sys.stdin:
        Path(component).write_text(json.loads(line), encoding="utf-8")
        status, processor_s, answer = forked(work, limit_s)
        if answer is not None:
            verdict = answer["verdict"]
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXCPU):
            verdict = ["timed out", "", ""]
        else:
            verdict = ["raised", "", f"the process ended with status {status}"]
        noticed.update([verdict[1]] if verdict[0] != "refused" else [])
        if not durations and answer is not None:
            durations = answer["durations"] or {"": 0.0}
            limit_s = 4 * processor_s + SPARE_S
            found = [name for name in answer["modules"] if not name.startswith(("test_", "tests", "conftest", "__"))]
            load(found, but=module_name(Path(component)))
        answers.write(json.dumps([*verdict, round(processor_s, 2), len(durations)]) + "\n")
        answers.flush()


def tracked(root: Path) -> list[str]:
    """Return the files of a checkout that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    return [name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()]


class Copy:
    """A copy of the checkout, and a process that tests source texts in it.

    Parameters
    ----------
    folder : Path
        Where the copy is.
    component : str
        Path of the file that is mutated.
    tests : iterable of str
        Paths of its tests.
    log : str
        A file to which pytest's output is appended.
    """

    def __init__(self, folder: Path, component: str, tests: Iterable[str], log: str = os.devnull):
        own = os.pathsep.join([str(folder), str(folder / "host")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sim.mutation.copied", component, *tests],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": own, "PYTHONDONTWRITEBYTECODE": "1", "MUTATION_LOG": log},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tests = 0

    def judge(self, source: str) -> Verdict:
        """Return what the tests say of a source text. The first one must be the component's own."""
        self._process.stdin.write(json.dumps(source) + "\n")
        self._process.stdin.flush()
        outcome, test, message, processor_s, self.tests = json.loads(self._process.stdout.readline())
        return Verdict(outcome, test, message, processor_s)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def copied(component: str, tests: Iterable[str], *, root: Path = ROOT, log: str = os.devnull) -> Iterator[Copy]:
    """Copy a checkout, its ignored files left out, and delete the copy afterwards."""
    with TemporaryDirectory(prefix="mutation-") as folder:
        for name in tracked(root):
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)
        copy = Copy(Path(folder), component, tests, log)
        try:
            yield copy
        finally:
            copy.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
