"""The command line: what a switch is, what it does and counted, what ails it, how to free a job that died; and planning for many."""

import importlib.util
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise SystemExit("the command line needs two more packages: pip install 'iswitch[cli]'") from error

from iswitch.control import Control
from iswitch.doctor import examine
from iswitch.errors import IswitchError
from iswitch.explain import Grade, explain, explained
from iswitch.path import Finding, Mark
from iswitch.top import picture, take, watch
from iswitch.transport import UdpTransport
from iswitch.wire import JobState

__all__ = ["app", "main"]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Look at an iswitch, free its jobs; plan a fabric.")
out, err = Console(), Console(stderr=True)

SwitchOption = Annotated[str, typer.Option("--switch", metavar="HOST:PORT", envvar="ISWITCH_ADDRESS",
                                           help="Address of the switch.")]
WaitOption = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for it.")]
DEFAULT_SWITCH, DEFAULT_WAIT_S = "127.0.0.1:27000", 3.0


@contextmanager
def _asking(switch: str, timeout_s: float) -> Iterator[Control]:
    """A connection to the switch; errors become a sentence and exit code 1."""
    try:
        transport = UdpTransport(switch)
        try:
            yield Control(transport, address=switch, timeout_s=timeout_s)
        finally:
            transport.close()
    except (IswitchError, OSError, ValueError) as error:
        err.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error


@app.command()
def status(switch: SwitchOption = DEFAULT_SWITCH, timeout: WaitOption = DEFAULT_WAIT_S) -> None:
    """What the switch is built with, its jobs, and the traffic of its ports."""
    with _asking(switch, timeout) as control:
        config = control.config()
        jobs = [control.job(job) for job in range(config.jobs)]
        counts = control.counters(config.ports)
    out.print(f"iswitch at {switch}: {config.ports} ports, {config.bus_bits} bit bus, {config.jobs} jobs of up to "
              f"{config.members} workers, window {config.window} segments of up to {config.elements} numbers",
              highlight=False)
    table = Table("job", "state", "workers", "threshold", "epoch")
    for job in jobs:
        if job.state == JobState.NONE:
            table.add_row(str(job.job), "free", "", "", "")
        else:
            table.add_row(str(job.job), job.state.name.lower(), f"{job.live} of {job.world}", str(job.threshold),
                          str(job.epoch))
    out.print(table)
    table = Table("port", "received", "sent", "damaged", "dropped")
    for port in range(config.ports):
        received, sent, damaged, dropped = (
            sum(counts[f"port{port}.{name}"] for name in names)
            for names in (["RX_FRAMES"], ["TX_FRAMES"], ["RX_ERROR", "RX_RUNT", "RX_OVERSIZE"],
                          ["TX_DROP_RESULT", "TX_DROP_REPLY", "TX_DROP_ORDINARY"]))
        table.add_row(str(port), str(received), str(sent), str(damaged), str(dropped))
    out.print(table)


@app.command()
def counters(
    switch: SwitchOption = DEFAULT_SWITCH, timeout: WaitOption = DEFAULT_WAIT_S,
    everything: Annotated[bool, typer.Option("--all", help="Those that are zero, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """What the switch counted, each with a sentence on what it means."""
    with _asking(switch, timeout) as control:
        counts = control.counters()
    counts = {name: count for name, count in counts.items() if count or everything}
    if as_json:
        print(json.dumps(counts, indent=2))
        return
    table = Table("counter", "count", "meaning")
    for name, count in counts.items():
        odd = count and explained(name).grade != Grade.FINE
        table.add_row(name, str(count), explain(name), style="yellow" if odd else None)
    out.print(table if counts else "all counters are zero")


@app.command()
def doctor(
    switch: SwitchOption = DEFAULT_SWITCH, timeout: WaitOption = DEFAULT_WAIT_S,
    job: Annotated[int | None, typer.Option("--job", min=0, max=255, help="Try whether --key is this job's.")] = None,
    key: Annotated[int, typer.Option("--key", min=0, help="The key its workers join with.")] = 0,
    rate: Annotated[float, typer.Option("--rate", metavar="GBPS", min=0.001, help="Of your links, to compare the window with.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array, for programs.")] = False,
) -> None:
    """Check the switch and the way to it, and say what to do. Exit code 1 if something is bad."""
    findings = []
    try:
        for finding in examine(switch, job=job, key=key, rate_gbps=rate, timeout_s=timeout):
            findings.append(finding)
            if not as_json:
                _tell(finding)
    except (OSError, ValueError) as error:
        err.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    raise typer.Exit(any(finding.mark == Mark.BAD for finding in findings))


def _tell(finding: Finding) -> None:
    """One line, and one with the remedy if there is need for it."""
    style = {Mark.OK: "green", Mark.WARNING: "yellow", Mark.BAD: "bold red"}[finding.mark]
    out.print(Text.assemble((f"{finding.mark:>7}", style), f"  {finding.check:<15} {finding.figure}"), soft_wrap=True)
    if finding.remedy and finding.mark != Mark.OK:
        out.print(Text(f"{'':25}{finding.remedy}", style=style), soft_wrap=True)


@app.command()
def top(
    switch: SwitchOption = DEFAULT_SWITCH, timeout: WaitOption = DEFAULT_WAIT_S,
    interval: Annotated[float, typer.Option("--interval", metavar="SECONDS", min=0.05, help="Between two frames.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="With --once: draw the frame into a file.")] = None,
) -> None:
    """Jobs, members, rates and drops as they change; q ends it."""
    with _asking(switch, timeout) as control:
        if not once:
            watch(control, switch, out, interval_s=interval)
            return
        config = control.config()
        before = take(control, config)
        time.sleep(interval)
        frame = picture(switch, config, before, take(control, config, before))
    if svg is None:
        out.print(frame)
        return
    drawn = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    drawn.print(frame)
    try:
        drawn.save_svg(str(svg), title="iswitch top")
    except OSError as error:
        err.print(f"{svg} cannot be written: {error.strerror}", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error


@app.command()
def reset(
    job: Annotated[int, typer.Option("--job", min=0, max=255, help="Number of the job.")],
    key: Annotated[int, typer.Option("--key", min=0, help="The key its workers joined with.")] = 0,
    switch: SwitchOption = DEFAULT_SWITCH, timeout: WaitOption = DEFAULT_WAIT_S,
) -> None:
    """End a job, whoever is in it: frees the number of a job whose workers died without leaving."""
    with _asking(switch, timeout) as control:
        control.end_job(job, key)
    out.print(f"job {job} at {switch} is free", highlight=False)


if all(importlib.util.find_spec(needed) for needed in ("highspy", "networkx", "yaml")):
    from iswitch.plan.command import plan

    app.command()(plan)
else:
    @app.command("plan")
    def unplanned() -> None:
        """Plan which switch sums whose gradients (needs pip install 'iswitch[plan]')."""
        err.print("planning needs more packages: pip install 'iswitch[cli,plan]'", style="red", markup=False, highlight=False)
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the `iswitch` command."""
    app()


if __name__ == "__main__":
    main()
