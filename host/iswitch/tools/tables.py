"""What `iswitch status`, `iswitch counters` and `iswitch doctor` print."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from iswitch.control.counters import Severity, counter_entry, explain_counter
from iswitch.control.registers import JobStatus
from iswitch.control.switch_info import SwitchInfo
from iswitch.tools.path_checks import Finding, Mark
from iswitch.wire import JobState

__all__ = ["counter_table", "finding_lines", "job_table", "port_table", "summary"]

_PORT_COLUMNS = {
    "received": ["RX_FRAMES"],
    "sent": ["TX_FRAMES"],
    "damaged": ["RX_ERROR", "RX_RUNT", "RX_OVERSIZE"],
    "dropped": ["RX_OVERFLOW", "TX_DROP_GRANT", "TX_DROP_REPLY", "TX_DROP_ORDINARY", "TX_AGED", "TX_LINK_DOWN"],
}
"""The port counters that each column of `port_table` adds up."""


def summary(address: str, info: SwitchInfo) -> str:
    """Return one sentence on what a switch was built with."""
    return (
        f"iswitch at {address}: {info.ports} ports, {info.bus_bits} bit bus, {info.jobs} jobs of up to "
        f"{info.members} workers, window {info.window} segments of up to {info.elements} elements "
        f"({info.uplink_elements} in a tree of switches)"
    )


def job_table(jobs: list[JobStatus]) -> Table:
    """Return a table with a row for each job."""
    table = Table("job", "state", "workers", "threshold", "epoch")
    for job in jobs:
        if job.state == JobState.NONE:
            table.add_row(str(job.job), "free", "", "", "")
        else:
            table.add_row(
                str(job.job), job.state.name.lower(), f"{job.live} of {job.world}", str(job.threshold), str(job.epoch)
            )
    return table


def port_table(counters: dict[str, int], ports: int) -> Table:
    """Return a table with the frames of each port, from the switch's counters by name."""
    table = Table("port", *_PORT_COLUMNS)
    for port in range(ports):
        totals = [sum(counters[f"port{port}.{name}"] for name in names) for names in _PORT_COLUMNS.values()]
        table.add_row(str(port), *map(str, totals))
    return table


def counter_table(counters: dict[str, int]) -> Table:
    """Return a table of counters by name, with the meaning of each. Counters of drops and unusual events are yellow."""
    table = Table("counter", "count", "meaning")
    for name, count in counters.items():
        unusual = count and counter_entry(name).severity != Severity.NORMAL
        table.add_row(name, str(count), explain_counter(name), style="yellow" if unusual else None)
    return table


def finding_lines(finding: Finding) -> Iterator[Text]:
    """Yield a finding on one line, and its remedy on the next if the finding is not ok."""
    style = {Mark.OK: "green", Mark.WARNING: "yellow", Mark.BAD: "bold red"}[finding.mark]
    yield Text.assemble((f"{finding.mark:>7}", style), f"  {finding.check:<15} {finding.figure}")
    if finding.remedy and finding.mark != Mark.OK:
        yield Text(f"{'':25}{finding.remedy}", style=style)
