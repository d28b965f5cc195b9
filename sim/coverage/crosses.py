"""Which outcomes of frames occur in which state of a job, with frames of which size, at switches of how many ports.

`python -m sim.coverage.crosses` runs the load of `sim.coverage.load` on compiled switches of one, two and four ports,
each beside the golden model, which sends the same frames and has the same counters. It prints a table: for each outcome
and state, the size classes that occurred. `IMPOSSIBLE` has the crosses that no frame can reach, each with its rule.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple
from unittest.mock import patch

import typer

from iswitch.config import Config
from iswitch.golden.decide.job import Job
from iswitch.golden.ingress.parse import parse
from iswitch.golden.switch import Switch
from iswitch.golden.tree_switch import TreeSwitch
from iswitch.wire import ADDRESSES, CONTROL, FRAME_BYTES, HEADER, JobState, Outcome
from sim.coverage.load import SWITCHES, parts
from sim.emulator.toolchain import ROOT

__all__ = [
    "IMPOSSIBLE",
    "RECORD",
    "SIZES",
    "STATES",
    "Cross",
    "Rule",
    "crosses",
    "gaps",
    "kept",
    "recorded",
    "rule_of",
    "size_of",
    "state_of",
    "summary",
    "table",
]

RECORD = ROOT / "docs" / "crosses.json"
"""The crosses of docs/verification.md."""
SIZES = ("minimum", "one word", "middle", "full")
"""Classes of a frame's size: a header and nothing else, at most one bus word more, the last bus word of the largest
segment or more, and what lies between."""
STATES = ("no job", "none", "ended", "forming", "running", "asynchronous", "leaf", "root", "halted")
"""States of the job that a frame names. "no job": the outcome was decided before a job was looked up."""


class Cross(NamedTuple):
    """What a frame can meet: its outcome, the class of its size, the state of its job, and the ports of the switch."""

    outcome: Outcome
    size: str
    state: str
    ports: int


class Rule(NamedTuple):
    """Crosses that no frame can reach, and why."""

    holds: Callable[[Cross, Config], bool]
    reason: str


BEFORE_JOBS = {
    Outcome.ORDINARY,
    Outcome.FILTERED,
    Outcome.RESERVED,
    Outcome.ANSWERED,
    Outcome.UNANSWERED,
    Outcome.SPOOFED,
    Outcome.FLOOD_LIMITED,
    Outcome.VERSION,
    Outcome.IP_CHECKSUM,
    Outcome.UDP_CHECKSUM,
    Outcome.REPLAY,
}
OF_RING = {
    Outcome.ADDED,
    Outcome.QUARANTINED,
    Outcome.RECEIPT,
    Outcome.DUPLICATE,
    Outcome.LATE,
    Outcome.STALE,
    Outcome.WINDOW,
    Outcome.SLOT_HELD,
    Outcome.COLLECTIVE,
    Outcome.UNHELD,
}
HAVE_ELEMENTS = {Outcome.ADDED, Outcome.QUARANTINED, Outcome.LATE, Outcome.SLOT_HELD, Outcome.COLLECTIVE}
CONTROLS = {Outcome.CONTROL, Outcome.REFUSED}
ABSENT = ("none", "ended")


def _size(length: int, config: Config) -> str:
    if length <= FRAME_BYTES:
        return SIZES[0]
    if length <= FRAME_BYTES + config.bus_bytes:
        return SIZES[1]
    return SIZES[2] if length <= FRAME_BYTES + 4 * config.elements - config.bus_bytes else SIZES[3]


def _may_be_empty(x: Cross) -> bool:
    """Return whether a message with nothing after its header can have the outcome of a control message."""
    states = {"asynchronous", "halted"} | ({"leaf"} if x.outcome == Outcome.CONTROL else set())
    return x.size == "minimum" and x.state in states


IMPOSSIBLE = (
    Rule(lambda x, c: x.outcome == Outcome.CORRUPT, "Only a bit error in a memory has this outcome"),
    Rule(
        lambda x, c: (
            (x.outcome in BEFORE_JOBS) != (x.state == "no job")
            and not (x.state == "no job" and x.outcome in (Outcome.TYPE, Outcome.LENGTH))
        ),
        "Some outcomes are decided before a job is looked up, the others after",
    ),
    Rule(lambda x, c: x.outcome == Outcome.REPLAY and not c.replay, "This switch has no replay service"),
    Rule(
        lambda x, c: (
            x.outcome in CONTROLS and x.size != _size(FRAME_BYTES + CONTROL.itemsize, c) and not _may_be_empty(x)
        ),
        "A control message has one length; claims and a parent's notices have nothing after their header",
    ),
    Rule(lambda x, c: x.outcome == Outcome.JOB and x.state not in ABSENT, "The job exists"),
    Rule(
        lambda x, c: x.state in ABSENT and x.outcome not in CONTROLS | {Outcome.JOB, Outcome.TYPE},
        "A frame for no job has the outcome JOB before any check of a member",
    ),
    Rule(
        lambda x, c: x.state == "forming" and x.outcome in OF_RING | {Outcome.HALTED, Outcome.FORMAT, Outcome.LENGTH},
        "A member's frame for a job that forms has the outcome FORMING before any check of its content",
    ),
    Rule(lambda x, c: x.outcome == Outcome.HALTED and x.state != "halted", "The job is not halted"),
    Rule(
        lambda x, c: (
            x.state == "halted"
            and x.outcome in (Outcome.ADDED, Outcome.QUARANTINED, Outcome.COLLECTIVE, Outcome.FORMAT)
        ),
        "A contribution for a halted job has the outcome HALTED",
    ),
    Rule(
        lambda x, c: x.state == "halted" and x.size == "minimum" and x.outcome == Outcome.LENGTH,
        "A contribution for a halted job has the outcome HALTED, and other messages may be empty",
    ),
    Rule(
        lambda x, c: x.state == "halted" and x.size != "minimum" and x.outcome in OF_RING,
        "Only receipts and claims pass the checks of a halted job, and they have nothing after their header",
    ),
    Rule(
        lambda x, c: x.size == "minimum" and x.outcome in HAVE_ELEMENTS,
        "Only contributions, uplinks and results have this outcome, and they have at least one element",
    ),
    Rule(
        lambda x, c: x.outcome == Outcome.RECEIPT and x.size != "minimum",
        "A receipt has nothing after its header; any other has the outcome LENGTH",
    ),
    Rule(
        lambda x, c: x.outcome == Outcome.UNHELD and (x.size != "minimum" or x.state not in ("asynchronous", "halted")),
        "Only claims have this outcome",
    ),
    Rule(
        lambda x, c: (
            x.size == "minimum"
            and (
                x.outcome == Outcome.DUPLICATE
                and x.state in ("running", "root", "leaf")
                or x.outcome == Outcome.STALE
                and x.state in ("running", "root")
            )
        ),
        "Of messages without elements, only claims and a parent's notices have this outcome",
    ),
    Rule(lambda x, c: x.ports == 1 and x.outcome == Outcome.PORT, "With one port no frame comes from another port"),
)
"""The first rule that holds for a cross says why no frame reaches it."""


def size_of(frame: bytes, config: Config) -> str:
    """Return the class of a frame's size."""
    return _size(len(frame), config)


def state_of(job: Job, *, is_leaf: bool, had_job: bool) -> str:
    """Return the state of a job as a cross names it."""
    if job.state == JobState.NONE:
        return "ended" if had_job else "none"
    if job.state == JobState.FORMING:
        return "forming"
    if job.state == JobState.HALTED:
        return "halted"
    if is_leaf:
        return "leaf"
    return "root" if job.tree else "asynchronous" if job.claims else "running"


def rule_of(cross: Cross, config: Config) -> str | None:
    """Return why no frame can reach a cross, or None."""
    return next((rule.reason for rule in IMPOSSIBLE if rule.holds(cross, config)), None)


@contextmanager
def recorded(found: Counter[Cross]) -> Iterator[None]:
    """Count the crosses of all frames that golden models receive meanwhile."""
    receive = Switch.receive

    def counting(self: Switch, port: int, frame: bytes, now_us: int, error: bool = False, *, overflow: bool = False):
        before = list(self.outcomes)
        had: set[int] = self.__dict__.setdefault("had_jobs", set())
        known = frame[ADDRESSES.itemsize : ADDRESSES.itemsize + HEADER.itemsize]
        number = known[int(HEADER.fields["job"][1])] if len(known) == HEADER.itemsize else 0
        job = self.job(number)
        parents = self.parents if isinstance(self, TreeSwitch) else {}
        state = state_of(job, is_leaf=number in parents, had_job=number in had)
        if job.state != JobState.NONE:
            had.add(number)
        sent = receive(self, port, frame, now_us, error, overflow=overflow)
        for outcome in Outcome:
            if self.outcomes[outcome] != before[outcome]:
                if outcome in BEFORE_JOBS or (
                    outcome in (Outcome.TYPE, Outcome.LENGTH)
                    and isinstance(parse(port, frame, self.own.ip, self.accepted_types()), Outcome)
                ):
                    state = "no job"
                found[Cross(outcome, size_of(frame, self.config), state, self.config.ports)] += 1
        return sent

    with patch.object(Switch, "receive", counting):
        yield


def crosses(configs: tuple[Config, ...] = SWITCHES, *, scale: float = 1.0) -> Counter[Cross]:
    """Run the load on compiled switches, and return how often each cross occurred."""
    found: Counter[Cross] = Counter()
    for config in configs:
        for _, run in parts(config, scale=scale):
            with recorded(found):
                run()
    return found


def every(configs: tuple[Config, ...]) -> Iterator[tuple[Cross, Config]]:
    """Yield all crosses with their configurations."""
    for config in configs:
        for outcome in Outcome:
            for state in STATES:
                for size in SIZES:
                    yield Cross(outcome, size, state, config.ports), config


def gaps(found: Counter[Cross], configs: tuple[Config, ...] = SWITCHES) -> list[Cross]:
    """Return the crosses that did not occur and that no rule forbids."""
    return [cross for cross, config in every(configs) if not found[cross] and rule_of(cross, config) is None]


def summary(found: Counter[Cross], configs: tuple[Config, ...] = SWITCHES) -> str:
    """Return the numbers of crosses as a table in Markdown, a row for each number of ports."""
    lines = ["| ports | crosses | excluded, by a rule | occurred | gaps |", "|---|---|---|---|---|"]
    for config in configs:
        all_of = [cross for cross, _ in every((config,))]
        ruled = [cross for cross in all_of if rule_of(cross, config)]
        met = sum(found[cross] > 0 for cross in all_of)
        lines.append(f"| {config.ports} | {len(all_of)} | {len(ruled)} | {met} | {len(gaps(found, (config,)))} |")
    return "\n".join(lines)


def table(found: Counter[Cross], config: Config = SWITCHES[0]) -> str:
    """Return the size classes that occurred, by outcome and state, as a table in Markdown: their first letters, a dot
    for one that did not occur, and nothing if all four are impossible."""
    lines = [f"| outcome | {' | '.join(STATES)} |", "|---" * (len(STATES) + 1) + "|"]
    for outcome in Outcome:
        cells = []
        for state in STATES:
            cell = ""
            for size in SIZES:
                cross = Cross(outcome, size, state, config.ports)
                if found[cross]:
                    cell += size[:2] + " "
                elif rule_of(cross, config) is None:
                    cell += "·· "
            cells.append(cell.strip())
        lines.append(f"| {outcome.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kept(path: Path = RECORD) -> Counter[Cross]:
    """Return the crosses that a file keeps."""
    return Counter(
        {
            Cross(Outcome[name], size, state, ports): count
            for name, size, state, ports, count in json.loads(path.read_text())
        }
    )


def main(
    scale: Annotated[float, typer.Option(help="A factor of the lengths of the load's parts.")] = 1.0,
    out: Annotated[Path | None, typer.Option(help="Keep the crosses in this file.")] = None,
    show: Annotated[Path | None, typer.Option(help="Print the tables of a file instead of running the load.")] = None,
) -> None:
    """Run the load, and print which crosses of outcome, size and state occurred."""
    found = kept(show) if show else crosses(scale=scale)
    if out:
        rows = [[x.outcome.name, x.size, x.state, x.ports, count] for x, count in sorted(found.items())]
        out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{summary(found)}\n\n{table(found)}")
    for config in SWITCHES:
        for cross in gaps(found, (config,)):
            print(f"gap: {cross.outcome.name}, {cross.size}, {cross.state}, {cross.ports} ports")


if __name__ == "__main__":
    typer.run(main)
