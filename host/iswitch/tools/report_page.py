"""The page of `iswitch report`: what was sampled of a switch, what the doctor found, and how a training went."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from iswitch.control.counters import Severity, counter_entry
from iswitch.distribution import version
from iswitch.report.markup import document, fold, notes, section, table, tiles
from iswitch.report.numbers import short_number
from iswitch.report.training import Training
from iswitch.serial import serial_distance
from iswitch.tools.path_checks import Finding
from iswitch.tools.report_charts import switch_charts, training_charts
from iswitch.tools.report_sampling import Sampling
from iswitch.tools.report_series import intervals, mean_rates, totals, unusual_counters
from iswitch.wire import VERSION, MemberState

__all__ = ["page"]

_TIME = "%Y-%m-%d %H:%M:%S"


def page(
    sampling: Sampling,
    findings: Sequence[Finding] = (),
    trainings: Sequence[Training] = (),
    remarks: Sequence[str] = (),
) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    sampling : Sampling
        The samples, at least one.
    findings : sequence of Finding
        What the doctor found.
    trainings : sequence of Training
        Trainings that the page shows.
    remarks : sequence of str
        Sentences for the head of the page, beside those on the sampling.
    """
    began = sampling.began
    ended = began + timedelta(seconds=sampling.at(sampling.samples[-1]))
    parts = [
        _sizes(sampling),
        notes([*_notes(sampling), *remarks]),
        section("Over time", f'<div class="charts">{"".join(switch_charts(sampling))}</div>'),
        section("Jobs and members", _jobs(sampling), _members(sampling)),
        section("Drops and unusual events", *_counters(sampling)),
    ]
    if findings:
        parts.append(section("What iswitch doctor finds", _findings(findings)))
    if trainings:
        parts.append(section("Training", *_trainings(trainings)))
    return document(
        f"iswitch at {sampling.address}",
        f"{began.strftime(_TIME)} to {ended.strftime(_TIME)} ({began.tzname()})",
        parts,
        f"Written by iswitch report, {version()}.",
    )


def _sizes(sampling: Sampling) -> str:
    info = sampling.info
    sizes: dict[str, object] = {
        "ports": info.ports,
        "jobs": info.jobs,
        "members of a job": info.members,
        "window, segments": info.window,
        "elements of a segment": info.elements,
        "bus, bits": info.bus_bits,
        "protocol version": VERSION,
        "replay service": "yes" if info.replay else "no",
        "samples": len(sampling.samples),
        "sampled, seconds": f"{sampling.at(sampling.samples[-1]) - sampling.at(sampling.samples[0]):.1f}",
    }
    return tiles(sizes)


def _notes(sampling: Sampling) -> Iterator[str]:
    """Yield what a reader must know of the sampling."""
    if sampling.ended:
        yield sampling.ended
    if sampling.silences:
        times = ", ".join(f"{at:.1f}" for at in sampling.silences[:8]) + (", ..." if sampling.silences[8:] else "")
        last_s = sampling.at(sampling.samples[-1])
        back = (
            "The switch answered again later."
            if sampling.silences[-1] < last_s
            else (f"The switch has not answered since. The last sample is that of {last_s:.1f} s.")
        )
        yield f"The switch stopped answering: no answer came until {times} s after the start. {back}"
    for step in intervals(sampling):
        if step.restarted:
            yield f"The switch restarted before {step.end_s:.1f} s: its counters began anew. Rates have a gap there."
    if len(sampling.samples) == 1:
        yield "There is one sample only, so the page shows no rates. Rates need two samples."


def _jobs(sampling: Sampling) -> str:
    jobs = sampling.samples[-1].snapshot.jobs
    rates = mean_rates(sampling)
    columns = "job", "state", "workers", "threshold", "segments", "segments/s", "MB/s", "waits for ranks"
    rows = [
        (
            number,
            each.job.state.name.lower(),
            f"{len(each.job.live)} of {each.job.world}",
            each.job.threshold,
            f"{(each.lowest - each.job.first_seq) % 2**32:,}" if each.progress else "",
            short_number(rates[number]),
            f"{rates[number] * each.contribution_bytes / 1e6:.2f}",
            ", ".join(map(str, each.awaited)),
        )
        for number, each in jobs.items()
    ]
    free = f"{sampling.info.jobs - len(jobs)} of {sampling.info.jobs} jobs are free."
    shown = table(columns, rows, numbers=("job", *columns[2:7]), empty="No job exists at the last sample.")
    return (
        f'{shown}<p class="note">{free} Segments: those whose results all members have, since the last reset of the '
        "job. Rates: means over the sampling.</p>"
    )


def _members(sampling: Sampling) -> str:
    """Return a table of members; "" if there are none. The lag of a member is the number of results that it has
    acknowledged fewer than the most advanced member."""
    columns = "job", "rank", "standing", "port", "address", "MAC", "lag, segments", "last heard"
    rows: list[Sequence[object]] = []
    styles = []
    for number, each in sampling.samples[-1].snapshot.jobs.items():
        lead = {rank: serial_distance(seq, each.lowest) for rank, seq in each.progress.items()}
        for member in each.members:
            absent = member.standing == MemberState.NONE
            styles.append("dim" if absent else "")
            if absent:
                rows.append((number, member.rank, "absent", "", "", "", "", ""))
                continue
            rows.append(
                (
                    number,
                    member.rank,
                    member.standing.name.lower(),
                    member.port,
                    member.address,
                    member.mac,
                    max(lead.values()) - lead[member.rank] if member.rank in lead else "",
                    f"{member.silent_s:.1f} s ago",
                )
            )
    shown = table(columns, rows, numbers=("job", "rank", "port", "lag, segments", "last heard"), styles=styles)
    return f"<h3>Members</h3>{shown}" if rows else ""


def _counters(sampling: Sampling) -> Iterator[str]:
    """Yield a table of drops and unusual events, and one of all counters."""
    counts, added = sampling.samples[-1].snapshot.counters, totals(intervals(sampling))
    columns = "counter", "total", "added", "meaning", "what helps"

    def row(name: str) -> tuple[str, str, str, str, str]:
        _, meaning, remedy = counter_entry(name)
        return name, f"{counts[name]:,}", f"{added.get(name, 0):,}", meaning, remedy

    def style(name: str) -> str:
        if not added.get(name):
            return ""
        return "bad" if counter_entry(name).severity == Severity.FAULT else "warning"

    unusual = unusual_counters({name: added.get(name, 0) or count for name, count in counts.items()})
    unusual.sort(key=lambda name: (-added.get(name, 0), -counts[name]))
    yield table(
        columns,
        map(row, unusual),
        numbers=columns[1:3],
        styles=[*map(style, unusual)],
        empty="The switch has dropped no frame, and has counted no unusual event.",
    )
    if unusual:
        yield '<p class="note">Added: while the switch was sampled. Counters that rose are in colour.</p>'
    yield fold("All counters", table(columns[:4], (row(name)[:4] for name in counts), numbers=columns[1:3]))


def _findings(findings: Sequence[Finding]) -> str:
    rows = [(found.mark, found.check, found.figure, found.remedy) for found in findings]
    return table(("result", "check", "finding", "what helps"), rows, styles=[str(found.mark) for found in findings])


def _trainings(trainings: Sequence[Training]) -> Iterator[str]:
    columns = "training", "updates", "environment steps", "seconds", "mean return", "remarks"
    rows = []
    for training in trainings:
        facts = ", ".join(f"{name} {value}" for name, value in training.facts.items())
        last = training.curve[-1] if training.curve else None
        figures = (
            (f"{last.update:,}", f"{last.steps:,}", f"{last.seconds:,.1f}", f"{last.mean_return:,.1f}")
            if last
            else ("", "", "", "no report yet")
        )
        rows.append((training.name, *figures, facts))
    yield table(columns, rows, numbers=columns[1:5])
    yield f'<div class="charts" style="margin-top:14px">{"".join(training_charts(trainings))}</div>'
