"""What a switch shows, as families of Prometheus metrics: all counters, jobs, members."""

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from iswitch.control.client import Control
from iswitch.control.counters import counter_entry
from iswitch.control.inspection import MemberView
from iswitch.control.switch_info import SwitchInfo
from iswitch.errors import SwitchUnreachableError
from iswitch.serial import serial_distance
from iswitch.tools.snapshot import Snapshot, read_snapshot
from iswitch.wire import JobState, MemberState, Outcome, PortCounter

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["SwitchSource", "switch_families"]


class SwitchSource:
    """Reads a switch for each scrape, one scrape at a time.

    Parameters
    ----------
    control : Control
        Connection to the switch.
    """

    def __init__(self, control: Control):
        self._control = control
        self._lock = threading.Lock()
        self._info: SwitchInfo | None = None
        self._before: Snapshot | None = None

    def families(self) -> list["Metric"]:
        """Return the families of metrics. If the switch does not answer, only `iswitch_up` 0."""
        from prometheus_client.core import GaugeMetricFamily

        up = GaugeMetricFamily("iswitch_up", "1 if the switch has answered, else 0")
        with self._lock:
            try:
                # Read anew after a silence: another switch may have taken the place of the first one.
                self._info = self._info or self._control.switch_info()
                self._before = read_snapshot(self._control, self._info, self._before)
            except SwitchUnreachableError:
                self._info = self._before = None
                up.add_metric([], 0)
                return [up]
            up.add_metric([], 1)
            return [up, *switch_families(self._info, self._before)]


def switch_families(info: SwitchInfo, now: Snapshot) -> Iterator["Metric"]:
    """Yield the families of a switch that has answered.

    Parameters
    ----------
    info : SwitchInfo
        Sizes of the switch.
    now : Snapshot
        Its counters, jobs and members.
    """
    from prometheus_client.core import InfoMetricFamily

    sizes = ("ports", "bus_bits", "members", "jobs", "window", "elements")
    yield InfoMetricFamily("iswitch", "Sizes of the switch", {size: str(getattr(info, size)) for size in sizes})
    yield from _counters(now.counters)
    yield from _jobs(now)
    yield from _members(now)


def _counters(counters: dict[str, int]) -> Iterator["Metric"]:
    """Yield the counters, as they are in the switch: modulo 2^32, from 0 after a reset."""
    from prometheus_client.core import CounterMetricFamily

    frames = CounterMetricFamily(
        "iswitch_frames", "Frames by their outcome; each frame has exactly one (`iswitch counters`)", labels=["outcome"]
    )
    ports = CounterMetricFamily(
        "iswitch_port_events", "Events of each port (`iswitch counters`)", labels=["port", "event"]
    )
    replay = CounterMetricFamily("iswitch_replay_requests", "Requests of the replay service", labels=["outcome"])
    events: list[Metric] = []
    for name, count in counters.items():
        group, _, event = name.rpartition(".")
        if group == "replay":
            replay.add_metric([event], count)
        elif event in PortCounter.__members__ and group:
            ports.add_metric([group.removeprefix("port"), event], count)
        elif name in Outcome.__members__:
            frames.add_metric([name], count)
        else:
            events.append(
                CounterMetricFamily(f"iswitch_{name.lower()}", _sentence(counter_entry(name).meaning), value=count)
            )
    yield from (frames, *events, ports)
    if replay.samples:
        yield replay


def _jobs(now: Snapshot) -> Iterator["Metric"]:
    """Yield a row for each job that exists."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"iswitch_job_{name}", text, labels=["job", *labels])

    state = gauge("state", "1 for the state that the job is in, 0 for the others", "state")
    world = gauge("world", "Workers of the job")
    live = gauge("live", "Members of the job")
    joining = gauge("joining", "Members that wait to be admitted")
    threshold = gauge("threshold", "Workers that complete a sum")
    staleness = gauge("staleness", "Updates that a vector's weights may lack, in an asynchronous job")
    size = gauge("contribution_bytes", "Mean payload of a contribution, of some of the latest segments")
    awaited = gauge("awaited", "1 if the job makes no progress and waits for this rank, else 0", "rank")
    segments = CounterMetricFamily(
        "iswitch_job_segments", "Segments whose results all members have, since the job's last reset", labels=["job"]
    )
    for number, snapshot in now.jobs.items():
        job, label = snapshot.job, str(number)
        for each in JobState:
            if each != JobState.NONE:
                state.add_metric([label, each.name.lower()], each == job.state)
        world.add_metric([label], job.world)
        live.add_metric([label], len(job.live))
        joining.add_metric([label], len(job.joining))
        threshold.add_metric([label], job.threshold)
        staleness.add_metric([label], job.staleness)
        size.add_metric([label], snapshot.contribution_bytes)
        if snapshot.progress:
            segments.add_metric([label], (snapshot.lowest - job.first_seq) % 2**32)
        for rank in range(job.world):
            awaited.add_metric([label, str(rank)], rank in snapshot.awaited)
    yield from (state, world, live, joining, threshold, staleness, size, segments, awaited)


def _members(now: Snapshot) -> Iterator["Metric"]:
    """Yield a row for each member that a job has."""
    from prometheus_client.core import GaugeMetricFamily

    labels = ["job", "rank", "port"]
    silent = GaugeMetricFamily("iswitch_member_silent_seconds", "Time since the member's last frame", labels=labels)
    lag = GaugeMetricFamily(
        "iswitch_member_lag_segments",
        "Results that the member has acknowledged fewer than the most advanced member",
        labels=labels,
    )
    for number, snapshot in now.jobs.items():
        lead = {rank: serial_distance(seq, snapshot.lowest) for rank, seq in snapshot.progress.items()}
        for member in _present(snapshot.members):
            row = [str(number), str(member.rank), str(member.port)]
            silent.add_metric(row, member.silent_s)
            if member.rank in lead:
                lag.add_metric(row, max(lead.values()) - lead[member.rank])
    yield from (silent, lag)


def _present(members: Iterable[MemberView]) -> Iterator[MemberView]:
    return (member for member in members if member.standing != MemberState.NONE)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
