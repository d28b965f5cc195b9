"""A live view of a switch in a terminal, for `iswitch top`: jobs, members, rates and drops."""

import contextlib
import io
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from iswitch.control.client import Control
from iswitch.control.counters import Severity, counter_entry
from iswitch.control.switch_info import SwitchInfo
from iswitch.errors import SwitchUnreachableError
from iswitch.report.numbers import short_number
from iswitch.serial import serial_distance
from iswitch.tools.snapshot import Snapshot, read_snapshot
from iswitch.wire import JobState, MemberState

__all__ = ["drawing", "frame", "watch"]

_DROPS_SHOWN = 12
_SILENT_S = 5.0
"""A member that a job waits for is shown in red if it has been silent for longer."""


def frame(address: str, info: SwitchInfo, before: Snapshot, now: Snapshot) -> Group:
    """Return one update for a terminal of 80 columns, with the rates between two snapshots."""
    seconds = max(now.time_s - before.time_s, 1e-9)
    rates = {name: (count - before.counters[name]) % 2**32 / seconds for name, count in now.counters.items()}
    received, sent = (
        sum(rates[f"port{port}.{name}"] for port in range(info.ports)) for name in ("RX_FRAMES", "TX_FRAMES")
    )
    head = Text.assemble(
        (f"iswitch {address}", "bold"),
        f"  {info.ports} ports, {info.bus_bits} bits, window {info.window}\n",
        f"per second: frames in {short_number(received)}, out {short_number(sent)}; "
        f"contributions {short_number(rates['ADDED'])}; results {short_number(rates['RESULTS'])}",
    )
    parts: list[Table | Text] = [head, Text(), _jobs(info, before, now, seconds), Text()]
    if now.jobs:
        parts += [_members(now), Text()]
    return Group(*parts, _drops(now, rates))


def drawing(shown: Group) -> str:
    """Return an update as an SVG picture, which loads nothing: it is shown in a font of the viewer's machine."""
    recorder = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    recorder.print(shown)
    return re.sub(r"@font-face\s*\{.*?\}\s*", "", recorder.export_svg(title="iswitch top"), flags=re.DOTALL)


def _table(*columns: str, right: tuple[str, ...], widest: str) -> Table:
    """Return an empty table. The column `widest` takes the width that the others leave, and is cut if it is too
    long."""
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


def _jobs(info: SwitchInfo, before: Snapshot, now: Snapshot, seconds: float) -> Table:
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
    for number, (job, _, _, lowest, contribution_bytes, awaited) in now.jobs.items():
        earlier = before.jobs.get(number)
        same = earlier is not None and (earlier.job.epoch, earlier.job.first_seq) == (job.epoch, job.first_seq)
        rate = max(0, serial_distance(lowest, earlier.lowest)) / seconds if same and earlier is not None else 0.0
        style = "" if job.state == JobState.RUNNING and not awaited else "yellow"
        table.add_row(
            str(number),
            job.state.name.lower(),
            f"{len(job.live)}/{job.world}",
            str(job.threshold),
            short_number(rate),
            f"{rate * contribution_bytes / 1e6:.2f}",
            ", ".join(map(str, awaited)),
            style=style,
        )
    free = info.jobs - len(now.jobs)
    table.caption, table.caption_justify = f"{free} of {info.jobs} jobs free", "left"
    return table


def _members(now: Snapshot) -> Table:
    """Return a table of members. The lag of a member is the number of results that it has acknowledged fewer than the
    most advanced member."""
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
    for number, snapshot in now.jobs.items():
        lead = {member: serial_distance(seq, snapshot.lowest) for member, seq in snapshot.progress.items()}
        for member in snapshot.members:
            if member.standing == MemberState.NONE:
                table.add_row(str(number), str(member.rank), "absent", style="dim")
                continue
            awaited = member.rank in snapshot.awaited
            lag = str(max(lead.values()) - lead[member.rank]) if member.rank in lead else ""
            table.add_row(
                str(number),
                str(member.rank),
                member.standing.name.lower(),
                str(member.port),
                member.address,
                member.mac,
                lag,
                f"{member.silent_s:.1f} s",
                style="" if not awaited else "red" if member.silent_s > _SILENT_S else "yellow",
            )
    return table


def _drops(now: Snapshot, rates: dict[str, float]) -> Table:
    """Return a table of the counters of drops and unusual events. Counters that rise come first, faults before
    others."""
    unusual = [
        (rates[name] > 0, counter_entry(name).severity, rates[name], name)
        for name, count in now.counters.items()
        if count and counter_entry(name).severity != Severity.NORMAL
    ]
    table = _table("drops and unusual events", "per s", "count", "meaning", widest="meaning", right=("per s", "count"))
    for _, severity, rate, name in sorted(unusual, reverse=True)[:_DROPS_SHOWN]:
        table.add_row(
            name,
            short_number(rate),
            f"{now.counters[name]:,}",
            counter_entry(name).meaning,
            style=("red" if severity == Severity.FAULT else "yellow") if rate else "dim",
        )
    if not unusual:
        table.add_row("none")
    return table


def watch(control: Control, address: str, console: Console, *, interval_s: float = 1.0) -> None:
    """Show an update each `interval_s` seconds until the user presses q or Ctrl-C. While the switch does not answer,
    show the error below the last update."""
    info = control.switch_info()
    before = read_snapshot(control, info)
    shown: Group | Text = Text("...")
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keyboard() as wait_for_key,
        Live(shown, console=console, screen=True, auto_refresh=False) as live,
    ):
        while wait_for_key(interval_s) != "q":
            try:
                now = read_snapshot(control, info, before)
                shown, before = frame(address, info, before, now), now
                live.update(shown, refresh=True)
            except SwitchUnreachableError as error:
                live.update(Group(shown, Text(str(error), style="bold red")), refresh=True)


@contextlib.contextmanager
def _keyboard() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits some seconds for a key and returns it, "" if none was pressed. Without a terminal the
    function only waits."""
    if not sys.stdin.isatty():

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return

    def wait_for_key(seconds: float) -> str:
        return sys.stdin.read(1) if select.select([sys.stdin], [], [], seconds)[0] else ""

    settings = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield wait_for_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)
