"""The command `iswitch`: inspect and diagnose a switch, end or resume a job, plan a fabric of switches.

This file declares the commands and their options. The modules beside it do the work.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

from iswitch.distribution import describe_missing, missing_from, version

try:
    import typer
    from rich.console import Console
except ImportError as error:
    raise SystemExit(describe_missing("the command line of iswitch", missing_from("cli"), "cli")) from error

from iswitch.capture.command import explain, read_messages
from iswitch.capture.dissector import dissector
from iswitch.control.client import Control
from iswitch.control.job_key import default_key
from iswitch.control.settings import require_int
from iswitch.driver.udp import UdpTransport
from iswitch.errors import IswitchError, RefusedError
from iswitch.estimate.command import estimate_cluster
from iswitch.metrics.endpoint import exposition, serve_families
from iswitch.replay.rebuild import rebuild_table
from iswitch.replay.session import Session
from iswitch.switch.command import switch as software_switch
from iswitch.tools.doctor import examine
from iswitch.tools.path_checks import Mark
from iswitch.tools.report_command import write_report
from iswitch.tools.snapshot import read_snapshot
from iswitch.tools.switch_families import SwitchSource
from iswitch.tools.tables import counter_table, finding_lines, job_table, port_table, summary
from iswitch.tools.top import drawing, frame, watch
from iswitch.wire import Reason

__all__ = ["app", "main"]

app = typer.Typer(add_completion=False, no_args_is_help=True)
out, err = Console(), Console(stderr=True)

SwitchOption = Annotated[
    str, typer.Option("--switch", metavar="HOST:PORT", envvar="ISWITCH_ADDRESS", help="Address of the switch.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Seconds to wait for an answer of the switch.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
KeyOption = Annotated[
    int | None,
    typer.Option("--key", metavar="KEY", help="Key with which its workers joined. Default: that of the environment."),
]
OperatorKeyOption = Annotated[
    int | None, typer.Option("--operator-key", metavar="KEY", help="Operator key of the switch, in place of --key.")
]
DEFAULT_SWITCH, DEFAULT_TIMEOUT_S = "127.0.0.1:27000", 3.0


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the versions of the package and of the protocol, and exit.",
        ),
    ] = False,
) -> None:
    """Inspect and diagnose an iswitch, end jobs whose workers died, and plan a fabric of switches."""


@contextmanager
def _connected(switch: str, timeout_s: float) -> Iterator[Control]:
    """Connect to the switch. Print any error as one sentence and exit with code 1."""
    try:
        transport = UdpTransport(switch)
        try:
            yield Control(transport, address=switch, timeout_s=timeout_s)
        finally:
            transport.close()
    except (IswitchError, OSError, ValueError) as error:
        _fail(error)


def _fail(error: Exception | str) -> NoReturn:
    """Print an error unchanged on one line, and exit with code 1."""
    err.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1) from (error if isinstance(error, Exception) else None)


def _key_of(key: int | None) -> int:
    """Return the key of a job. Raises ValueError if the option is wrong or missing."""
    key = default_key() if key is None else key
    if key is None:
        raise ValueError(
            "which key the job has must be given: --key with the key of its workers, or --operator-key. If its "
            "workers name no key, end their processes: a job whose workers are all silent ends when its number is "
            "needed"
        )
    require_int("--key", key, 0, 2**64 - 1)
    return key


def _keys_of(key: int | None, operator_key: int | None) -> dict[str, int]:
    """Return the key of a command by key, as `Control` takes it. Raises ValueError if an option is wrong or missing."""
    if operator_key is None:
        return {"key": _key_of(key)}
    if key is not None:
        raise ValueError("give one key only: --key or --operator-key")
    require_int("--operator-key", operator_key, 1, 2**64 - 1)
    return {"operator_key": operator_key}


@app.command()
def status(switch: SwitchOption = DEFAULT_SWITCH, timeout: TimeoutOption = DEFAULT_TIMEOUT_S) -> None:
    """Show the sizes of the switch, its jobs, and the traffic of its ports."""
    with _connected(switch, timeout) as control:
        info = control.switch_info()
        jobs = [control.job(job) for job in range(info.jobs)]
        counters = control.counters(info.ports)
    out.print(summary(switch, info), highlight=False, soft_wrap=True)
    out.print(job_table(jobs))
    out.print(port_table(counters, info.ports))


@app.command("counters")
def print_counters(
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    show_all: Annotated[bool, typer.Option("--all", help="Also list the counters that are zero.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the counters of the switch, each with its meaning and a remedy."""
    with _connected(switch, timeout) as control:
        counters = control.counters()
    counters = {name: count for name, count in counters.items() if count or show_all}
    if as_json:
        print(json.dumps(counters, indent=2))
    else:
        out.print(counter_table(counters) if counters else "all counters are zero")


@app.command()
def doctor(
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    job: Annotated[
        int | None,
        typer.Option("--job", metavar="JOB", min=0, max=255, help="Check that --key gives the key of this job."),
    ] = None,
    key: KeyOption = None,
    rate: Annotated[
        float,
        typer.Option(
            "--rate",
            metavar="GBPS",
            min=0.001,
            help="Speed of your links. The doctor warns if the window is too small for it.",
        ),
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Check the switch and the network path to it, and print a remedy for each problem.

    The exit code is 1 if a check is bad.
    """
    findings = []
    try:
        checked = None if job is None else _key_of(key)
        for finding in examine(switch, job=job, key=checked, rate_gbps=rate, timeout_s=timeout):
            findings.append(finding)
            if not as_json:
                for line in finding_lines(finding):
                    out.print(line, soft_wrap=True)
    except (OSError, ValueError) as error:
        _fail(error)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    raise typer.Exit(any(finding.mark == Mark.BAD for finding in findings))


@app.command()
def top(
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.05, help="Seconds between two updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one update and exit.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="With --once: save the update as an SVG picture.")
    ] = None,
) -> None:
    """Watch jobs, members, rates and dropped frames live. Press q to quit."""
    with _connected(switch, timeout) as control:
        if not once:
            watch(control, switch, out, interval_s=interval)
            return
        info = control.switch_info()
        before = read_snapshot(control, info)
        time.sleep(interval)
        shown = frame(switch, info, before, read_snapshot(control, info, before))
    if svg is None:
        out.print(shown)
        return
    try:
        svg.write_text(drawing(shown), encoding="utf-8")
    except OSError as error:
        _fail(f"{svg} cannot be written: {error.strerror}")


@app.command()
def metrics(
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="TCP port for Prometheus; 0 for any.")
    ] = 9464,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="ADDRESS", help="Local address of the endpoint; 0.0.0.0 for all. Anybody may read it."
        ),
    ] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and exit.")] = False,
) -> None:
    """Serve counters, jobs and members of the switch to Prometheus, until Ctrl-C."""
    if lacking := missing_from("metrics"):
        _fail(describe_missing("iswitch metrics", lacking, "cli", "metrics"))
    with _connected(switch, timeout) as control, suppress(KeyboardInterrupt):
        source = SwitchSource(control)
        if once:
            print(exposition(source.families), end="")
            return
        with serve_families(source.families, port=port, address=listen) as endpoint:
            out.print(f"metrics of {switch} at http://{listen}:{endpoint.port}/metrics; Ctrl-C ends it", soft_wrap=True)
            while True:
                time.sleep(3600)


@app.command()
def report(
    address: Annotated[
        str | None,
        typer.Argument(metavar="[ADDRESS]", help="Address of the switch, HOST:PORT. Default: that of --switch."),
    ] = None,
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", min=0, help="How long the switch is sampled.")
    ] = 30.0,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.05, help="Seconds between two samples.")
    ] = 1.0,
    page: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write.")] = Path("report.html"),
    training: Annotated[
        Path | None,
        typer.Option(
            "--training",
            metavar="FOLDER",
            help="Also show the training that writes into this folder, or the trainings in the folders below it.",
        ),
    ] = None,
) -> None:
    """Sample the switch, and write one HTML page with charts, tables, and what the doctor finds.

    Ctrl-C ends the sampling early and writes the page.
    """
    switch = address or switch
    with _connected(switch, timeout) as control:
        sampling = write_report(control, seconds=seconds, interval_s=interval, out=page, training=training, console=err)
    out.print(f"{page} shows {len(sampling.samples)} samples of {switch}", highlight=False, soft_wrap=True)


@app.command("dissector")
def print_dissector() -> None:
    """Print a dissector for Wireshark, in Lua, which shows the fields of every message."""
    print(dissector(), end="")


@app.command("explain")
def explain_captures(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Captures: pcap or pcapng, of one port of the switch each.")
    ],
    job: Annotated[
        int | None, typer.Option("--job", metavar="JOB", min=0, max=255, help="Only this job. Default: all.")
    ] = None,
    segment: Annotated[
        int | None,
        typer.Option(
            "--segment",
            metavar="SEQ",
            min=0,
            max=2**32 - 1,
            help="The segment to tell about. Default: the one that lacks a result, or was sent again most.",
        ),
    ] = None,
    udp_port: Annotated[
        list[int] | None,
        typer.Option("--udp-port", metavar="PORT", help="Another UDP port of the switch. May be repeated."),
    ] = None,
) -> None:
    """Tell from captures which member sent what of a segment, and when: contributions, repeats, results."""
    try:
        found = read_messages(files, udp_port or [])
    except (OSError, ValueError) as error:
        _fail(error)
    for line in explain(found, job=job, seq=segment):
        print(line)


@app.command("end-job")
def end_job(
    job: Annotated[int, typer.Option("--job", metavar="JOB", min=0, max=255, help="Number of the job to end.")],
    key: KeyOption = None,
    operator_key: OperatorKeyOption = None,
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> None:
    """End a job and free its number, for example after its workers were killed. The exit code is 0 if it is free.

    Workers that still run get NotAMemberError. To empty the ring of a job and keep its members, call Worker.reset in
    one of them instead.
    """
    state = "free"
    with _connected(switch, timeout) as control:
        try:
            control.end_job(job, **_keys_of(key, operator_key))
        except RefusedError as refusal:
            if refusal.reason != Reason.JOB or job >= control.switch_info().jobs:
                raise
            state = "free already"
    out.print(f"job {job} at {switch} is {state}", highlight=False)


@app.command()
def resume(
    job: Annotated[int, typer.Option("--job", metavar="JOB", min=0, max=255, help="Number of the halted job.")],
    key: KeyOption = None,
    operator_key: OperatorKeyOption = None,
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> None:
    """Let a halted job go on, as `resume` does in one of its workers."""
    with _connected(switch, timeout) as control:
        control.resume_job(job, **_keys_of(key, operator_key))
    out.print(f"job {job} at {switch} goes on", highlight=False)


@app.command("rebuild-replay")
def rebuild_replay(
    table: Annotated[int, typer.Option("--table", metavar="TABLE", min=0, max=3, help="Number of the table.")] = 0,
    switch: SwitchOption = DEFAULT_SWITCH,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> None:
    """Rebuild the sums of a replay table from its priorities, after a bit error in the switch's memory.

    All clients continue, but the table is not sampled meanwhile.
    """
    with _connected(switch, timeout) as control:
        session = Session(control.transport, address=switch, table=table, timeout_s=timeout, wait_s=timeout)
        try:
            lost = rebuild_table(session)
        finally:
            session.close()
    lines = f"table {table} at {switch} is rebuilt"
    if lost:
        lines += f"; {lost} items had a bit error in their priority, which is 0 until an update"
    out.print(lines, highlight=False, soft_wrap=True)


app.command()(software_switch)
app.command("estimate")(estimate_cluster)


if missing := missing_from("plan"):

    @app.command("plan", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def plan_without_extra() -> None:
        r"""Plan a fabric (needs pip install 'iswitch-rl\[cli,plan]')."""
        _fail(describe_missing("iswitch plan", missing, "cli", "plan"))
else:
    from iswitch.plan.command import plan

    app.command()(plan)


def main() -> None:
    """Run the command `iswitch`."""
    app()


if __name__ == "__main__":
    main()
