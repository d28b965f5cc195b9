"""A live view of a switch: jobs, members, what is dropped, at what rates. For `iswitch top`."""

import contextlib
import random
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from iswitch.config import Config
from iswitch.control.client import Control
from iswitch.control.explanations import Grade, explained
from iswitch.control.inspection import (
    JobView,
    MemberView,
    awaited,
    lowest,
    read_have,
    read_job,
    read_member,
    read_slot,
    serial,
)
from iswitch.errors import SwitchUnreachableError
from iswitch.wire import JobState, SlotState, Standing

__all__ = ["Activity", "Snapshot", "picture", "take", "watch"]

_DROPS_SHOWN = 12
_SLOTS_READ = 8
_SILENT_S = 5.0


class Activity(NamedTuple):
    """A job at one moment. `have`: of each live member the lowest seq that it may lack, `low` the lowest of these.
    `bytes`: the mean of a contribution, of some of the latest. `awaited`: who keeps it from going on, if it stands
    still."""

    job: JobView
    members: list[MemberView]
    have: dict[int, int]
    low: int
    bytes: float
    awaited: list[int]


class Snapshot(NamedTuple):
    """What was read at about one moment (`at`, monotonic seconds); of jobs those that exist, by number."""

    at: float
    counters: dict[str, int]
    jobs: dict[int, Activity]


def take(control: Control, config: Config, before: Snapshot | None = None) -> Snapshot:
    """SwitchUnreachableError."""
    counters, at = control.counters(config.ports), time.monotonic()
    jobs = {}
    for number in range(config.jobs):
        job = read_job(control, number)
        if job.state == JobState.NONE:
            continue
        members = [read_member(control, number, member) for member in range(job.world)]
        have = read_have(control, job)
        low = lowest(have)
        earlier = before.jobs.get(number) if before else None
        stands = job.state == JobState.FORMING or earlier is not None and earlier.low == low
        jobs[number] = Activity(
            job,
            members,
            have,
            low,
            _contribution_bytes(control, number, config.window),
            awaited(control, job, have, config.window) if stands else [],
        )
    return Snapshot(at, counters, jobs)


def _contribution_bytes(control: Control, job: int, window: int) -> float:
    """Return the mean length of contributions in bytes, from some slots taken at random: the last segment of an array
    may be short."""
    slots = random.sample(range(2 * window), min(_SLOTS_READ, 2 * window))
    lengths = [slot.length for seq in slots if (slot := read_slot(control, job, seq, window)).state != SlotState.EMPTY]
    return sum(lengths) / max(1, len(lengths))


def picture(address: str, config: Config, before: Snapshot, now: Snapshot) -> Group:
    """One frame for a terminal of 80 columns."""
    seconds = max(now.at - before.at, 1e-9)
    rates = {name: (count - before.counters[name]) % 2**32 / seconds for name, count in now.counters.items()}
    total = {way: sum(rates[f"port{port}.{way}_FRAMES"] for port in range(config.ports)) for way in ("RX", "TX")}
    head = Text.assemble(
        (f"iswitch {address}", "bold"),
        f"  {config.ports} ports, {config.bus_bits} bits, window {config.window}\n",
        f"per second: frames in {_short(total['RX'])}, out {_short(total['TX'])}; contributions {_short(rates['ADDED'])}; "
        f"results {_short(rates['RESULTS'])}",
    )
    parts: list[Table | Text] = [head, Text(), _jobs(config, before, now, seconds), Text()]
    if now.jobs:
        parts += [_members(now), Text()]
    return Group(*parts, _drops(now, rates))


def _table(*columns: str, right: tuple[str, ...], widest: str) -> Table:
    """`widest` has what the others leave, cut where it is too long."""
    table = Table(box=None, pad_edge=False, header_style="bold reverse", expand=True)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if column == widest else None,
        )
    return table


def _jobs(config: Config, before: Snapshot, now: Snapshot, seconds: float) -> Table:
    table = _table(
        "job",
        "state",
        "workers",
        "threshold",
        "segments/s",
        "MB/s",
        "waits for",
        widest="waits for",
        right=("job", "workers", "threshold", "segments/s", "MB/s"),
    )
    for number, (job, _, _, low, size, missing) in now.jobs.items():
        earlier = before.jobs.get(number)
        same = earlier is not None and (earlier.job.epoch, earlier.job.first_seq) == (job.epoch, job.first_seq)
        rate = max(0, serial(low, earlier.low)) / seconds if same and earlier is not None else 0.0
        style = "" if job.state == JobState.RUNNING and not missing else "yellow"
        table.add_row(
            str(number),
            job.state.name.lower(),
            f"{len(job.live)}/{job.world}",
            str(job.threshold),
            _short(rate),
            f"{rate * size / 1e6:.2f}",
            ", ".join(map(str, missing)),
            style=style,
        )
    free = config.jobs - len(now.jobs)
    table.caption, table.caption_justify = f"{free} of {config.jobs} jobs free", "left"
    return table


def _members(now: Snapshot) -> Table:
    """Lag: how many results it has said that it holds fewer than who holds most."""
    table = _table(
        "job",
        "rank",
        "standing",
        "port",
        "address",
        "MAC",
        "lag",
        "silent",
        widest="address",
        right=("job", "rank", "port", "lag", "silent"),
    )
    for number, activity in now.jobs.items():
        lead = {member: serial(seq, activity.low) for member, seq in activity.have.items()}
        for member in activity.members:
            if member.standing == Standing.NONE:
                table.add_row(str(number), str(member.member), "absent", style="dim")
                continue
            awaits = member.member in activity.awaited
            lag = str(max(lead.values()) - lead[member.member]) if member.member in lead else ""
            table.add_row(
                str(number),
                str(member.member),
                member.standing.name.lower(),
                str(member.port),
                member.address,
                member.mac,
                lag,
                f"{member.silent_s:.1f} s",
                style="" if not awaits else "red" if member.silent_s > _SILENT_S else "yellow",
            )
    return table


def _drops(now: Snapshot, rates: dict[str, float]) -> Table:
    """Drops and oddities: those that rise first, and of these faults."""
    odd = [
        (rates[name] > 0, explained(name).grade, rates[name], name)
        for name, count in now.counters.items()
        if count and explained(name).grade != Grade.FINE
    ]
    table = _table("drops and oddities", "per s", "count", "meaning", widest="meaning", right=("per s", "count"))
    for _, grade, rate, name in sorted(odd, reverse=True)[:_DROPS_SHOWN]:
        table.add_row(
            name,
            _short(rate),
            f"{now.counters[name]:,}",
            explained(name).meaning,
            style=("red" if grade == Grade.FAULT else "yellow") if rate else "dim",
        )
    if not odd:
        table.add_row("none")
    return table


def _short(number: float) -> str:
    """Three digits and a unit: 0, 1.5, 23, 12.3k, 4.56M."""
    for unit in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"


def watch(control: Control, address: str, console: Console, *, interval_s: float = 1.0) -> None:
    """Shows a frame each `interval_s` until q or Ctrl-C; says so while the switch does not answer."""
    config = control.config()
    before = take(control, config)
    shown: Group | Text = Text("...")
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(shown, console=console, screen=True, auto_refresh=False) as live,
    ):
        while pressed(interval_s) != "q":
            try:
                now = take(control, config, before)
                shown, before = picture(address, config, before, now), now
                live.update(shown, refresh=True)
            except SwitchUnreachableError as error:
                live.update(Group(shown, Text(str(error), style="bold red")), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key for so many seconds; without a terminal it only waits."""
    if not sys.stdin.isatty():

        def waited(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield waited
        return

    def pressed(seconds: float) -> str:
        return sys.stdin.read(1) if select.select([sys.stdin], [], [], seconds)[0] else ""

    kept = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)
