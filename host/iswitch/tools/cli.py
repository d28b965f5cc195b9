"""The command line `iswitch`: inspect and diagnose a switch, end a job whose workers died, plan a fabric of
switches."""

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

from iswitch.tools.extras import demands, lacking, version

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise SystemExit(demands("the command line of iswitch", lacking("cli"), "cli")) from error

from iswitch.control.client import Control
from iswitch.control.explanations import Grade, explain, explained
from iswitch.control.membership import demand_int
from iswitch.driver.transport import UdpTransport
from iswitch.errors import IswitchError
from iswitch.tools.doctor import examine
from iswitch.tools.path_checks import Finding, Mark
from iswitch.tools.top import picture, take, watch
from iswitch.wire import JobState

__all__ = ["app", "main"]

app = typer.Typer(add_completion=False, no_args_is_help=True)
out, err = Console(), Console(stderr=True)

SwitchOption = Annotated[
    str, typer.Option("--switch", metavar="HOST:PORT", envvar="ISWITCH_ADDRESS", help="Address of the switch.")
]
WaitOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Seconds to wait for an answer of the switch.")
]
DEFAULT_SWITCH, DEFAULT_WAIT_S = "127.0.0.1:27000", 3.0


def _show_version(wanted: bool) -> None:
    if wanted:
        print(version())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the versions of the package and of the protocol, and exit.",
        ),
    ] = False,
) -> None:
    """Inspect and diagnose an iswitch, end jobs whose workers died, and plan a fabric of switches."""


@contextmanager
def _asking(switch: str, timeout_s: float) -> Iterator[Control]:
    """Connect to the switch; print any error as a sentence and exit with code 1."""
    try:
        transport = UdpTransport(switch)
        try:
            yield Control(transport, address=switch, timeout_s=timeout_s)
        finally:
            transport.close()
    except (IswitchError, OSError, ValueError) as error:
        _fail(error)


def _fail(error: Exception | str) -> NoReturn:
    """Print an error as it is, on one line, and exit with code 1."""
    err.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1) from (error if isinstance(error, Exception) else None)


@app.command()
def status(switch: SwitchOption = DEFAULT_SWITCH, timeout: WaitOption = DEFAULT_WAIT_S) -> None:
    """Show the configuration of the switch, its jobs, and the traffic of its ports."""
    with _asking(switch, timeout) as control:
        config = control.config()
        jobs = [control.job(job) for job in range(config.jobs)]
        counts = control.counters(config.ports)
    out.print(
        f"iswitch at {switch}: {config.ports} ports, {config.bus_bits} bit bus, {config.jobs} jobs of up to "
        f"{config.members} workers, window {config.window} segments of up to {config.elements} elements",
        highlight=False,
        soft_wrap=True,
    )
    table = Table("job", "state", "workers", "threshold", "epoch")
    for job in jobs:
        if job.state == JobState.NONE:
            table.add_row(str(job.job), "free", "", "", "")
        else:
            table.add_row(
                str(job.job), job.state.name.lower(), f"{job.live} of {job.world}", str(job.threshold), str(job.epoch)
            )
    out.print(table)
    table = Table("port", "received", "sent", "damaged", "dropped")
    for port in range(config.ports):
        received, sent, damaged, dropped = (
            sum(counts[f"port{port}.{name}"] for name in names)
            for names in (
                ["RX_FRAMES"],
                ["TX_FRAMES"],
                ["RX_ERROR", "RX_RUNT", "RX_OVERSIZE"],
                ["TX_DROP_RESULT", "TX_DROP_REPLY", "TX_DROP_ORDINARY"],
            )
        )
        table.add_row(str(port), str(received), str(sent), str(damaged), str(dropped))
    out.print(table)


@app.command()
def counters(
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: WaitOption = DEFAULT_WAIT_S,
    everything: Annotated[bool, typer.Option("--all", help="Also list the counters that are zero.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """List the counters of the switch, each with its meaning and a remedy."""
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
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: WaitOption = DEFAULT_WAIT_S,
    job: Annotated[
        int | None,
        typer.Option("--job", metavar="JOB", min=0, max=255, help="Check that --key is the key of this job."),
    ] = None,
    key: Annotated[int, typer.Option("--key", metavar="KEY", help="Key with which the workers join that job.")] = 0,
    rate: Annotated[
        float,
        typer.Option(
            "--rate",
            metavar="GBPS",
            min=0.001,
            help="Speed of your links. The doctor warns if the window is too small for it.",
        ),
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array, for programs.")] = False,
) -> None:
    """Check the switch and the network path to it, and print a remedy for each problem. The exit code is 1 if a check
    fails."""
    findings = []
    try:
        demand_int("--key", key, 0, 2**64 - 1)
        for finding in examine(switch, job=job, key=key, rate_gbps=rate, timeout_s=timeout):
            findings.append(finding)
            if not as_json:
                _tell(finding)
    except (OSError, ValueError) as error:
        _fail(error)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    raise typer.Exit(any(finding.mark == Mark.BAD for finding in findings))


def _tell(finding: Finding) -> None:
    """Print a finding on one line, and its remedy on the next if the finding is not ok."""
    style = {Mark.OK: "green", Mark.WARNING: "yellow", Mark.BAD: "bold red"}[finding.mark]
    out.print(Text.assemble((f"{finding.mark:>7}", style), f"  {finding.check:<15} {finding.figure}"), soft_wrap=True)
    if finding.remedy and finding.mark != Mark.OK:
        out.print(Text(f"{'':25}{finding.remedy}", style=style), soft_wrap=True)


@app.command()
def top(
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: WaitOption = DEFAULT_WAIT_S,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.05, help="Seconds between two updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one update and exit.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="With --once: save the update as an SVG picture.")
    ] = None,
) -> None:
    """Watch jobs, members, rates and dropped frames live. Press q to quit."""
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
        _fail(f"{svg} cannot be written: {error.strerror}")


@app.command()
def reset(
    job: Annotated[int, typer.Option("--job", metavar="JOB", min=0, max=255, help="Number of the job to end.")],
    key: Annotated[int, typer.Option("--key", metavar="KEY", help="Key with which its workers joined.")] = 0,
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: WaitOption = DEFAULT_WAIT_S,
) -> None:
    """End a job and free its number, for example after its workers were killed. Workers that still run get
    NotAMemberError."""
    with _asking(switch, timeout) as control:
        demand_int("--key", key, 0, 2**64 - 1)
        control.end_job(job, key)
    out.print(f"job {job} at {switch} is free", highlight=False)


if lacks := [name for name in lacking("plan") if name not in ("gymnasium", "matplotlib")]:

    @app.command("plan", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def plan_without_extra() -> None:
        r"""Plan a fabric (needs pip install 'iswitch-rl\[cli,plan]')."""
        _fail(demands("iswitch plan", lacks, "cli", "plan"))
else:
    from iswitch.plan.command import plan

    app.command()(plan)


def main() -> None:
    """Entry point of the `iswitch` command."""
    app()


if __name__ == "__main__":
    main()
