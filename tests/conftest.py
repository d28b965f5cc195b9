"""Which tests run: the short tier unless told otherwise (sim/bench/tiers.py). And no whole differences of long
lists."""

import os
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from sim.bench import tiers
from sim.bench.unraisable import without_discarded_testbenches

DURATIONS = Path(__file__).with_name("durations.json")
MEASURED = defaultdict(float)
"""Seconds of each case in this run, its set-up included."""
STALLS = {"stalls", "stall", "chance", "source_stalls"}
"""Parameters of tests that say how often a stream stalls."""
LONG_ONLY = pytest.StashKey[list[str]]()
"""Laws of the collected files that have no case in the short tier."""

# The same examples in each run, and no time limit on one: the machine may be slow.
hypothesis.settings.register_profile("iswitch", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("iswitch")

for name in ("CI", "BUILD_NUMBER"):
    # Where one of them is set, pytest writes out all that differs, whatever its verbosity is.
    os.environ.pop(name, None)


def pytest_addoption(parser):
    group = parser.getgroup("tiers")
    group.addoption(
        "--tier",
        choices=("short", "long", "slow", "all"),
        default="short",
        help="short: every law once (the default); long: everything else but what is marked slow; slow: that. "
        "A test named by its node id runs in any tier.",
    )
    group.addoption(
        "--shard", metavar="K/N", default="1/1", help="of the tests of the tier, the K-th of N parts of equal duration"
    )
    group.addoption(
        "--list-long-only",
        action="store_true",
        help="print the laws that have no case in the short tier, and run nothing",
    )
    group.addoption(
        "--waves",
        metavar="FOLDER",
        type=Path,
        help="keep the waveforms of the Amaranth simulations of failing tests, with a view for GTKWave (slow)",
    )
    group.addoption("--keep-durations", action="store_true", help=f"write the measured durations to {DURATIONS.name}")


def has_stalls(item):
    """A stream of the case stalls: one of the parameters that say how often is not zero."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return any(np.any(parameters[name]) for name in STALLS & parameters.keys())


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.add_cleanup(partial(setattr, sys, "unraisablehook", sys.unraisablehook))
    sys.unraisablehook = without_discarded_testbenches(sys.unraisablehook)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    durations = tiers.read(DURATIONS)
    cases = [item.nodeid for item in items]
    slow = {item.nodeid for item in items if item.get_closest_marker("slow")}
    short = tiers.short(cases, durations, slow=slow, stalled={item.nodeid for item in items if has_stalls(item)})
    config.stash[LONG_ONLY] = tiers.laws_without(cases, short)

    named = tuple(argument for argument in config.args if "::" in argument)
    tier = {"short": short, "long": set(cases) - short - slow, "slow": slow, "all": set(cases)}[config.option.tier]
    chosen = tier | {case for case in cases if case.startswith(named)} if named else tier
    try:
        number, count = map(int, config.option.shard.split("/"))
        chosen = tiers.shard(chosen, durations, number, count, slow=slow)
    except ValueError as error:
        raise pytest.UsageError(f"--shard must be K/N, such as 1/4, not {config.option.shard!r}: {error}") from error
    if config.option.list_long_only:
        chosen = set()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def pytest_terminal_summary(terminalreporter, config):
    if config.option.list_long_only:
        terminalreporter.write_line("\n".join(tiers.listed(config.stash[LONG_ONLY])))


def pytest_runtest_logreport(report):
    MEASURED[report.nodeid] += report.duration


def pytest_sessionfinish(session):
    if session.config.option.keep_durations and not hasattr(session.config, "workerinput"):
        known = {
            case
            for case in {**tiers.read(DURATIONS), **MEASURED}
            if (Path(session.config.rootpath) / case.partition("::")[0]).exists()
        }
        tiers.write(DURATIONS, tiers.merged(tiers.read(DURATIONS), MEASURED, known))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """With `--waves`, write the waveforms of the test's simulations, and delete them if the test passes."""
    if item.config.option.waves is None:
        yield
        return
    from sim.bench.waves import Recording, recorded  # here: not every tier's machine has Amaranth's simulator

    with recorded(Recording(item.config.option.waves, item.nodeid.removeprefix("tests/"))) as recording:
        outcome = yield
    if outcome.excinfo is None:
        recording.delete()
    for view in recording.views:
        item.add_report_section("call", "waveforms", f"gtkwave {view}")


@pytest.fixture
def long_only(request):
    """Laws of the collected files that have no case in the short tier."""
    return request.config.stash[LONG_ONLY]


@pytest.fixture
def whole_suite(request):
    """All of tests/ was collected."""
    return request.config.args == request.config.getini("testpaths")


@pytest.fixture
def one_thread():
    """Sums within torch in one order, and processor time for the other tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
