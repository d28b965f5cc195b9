"""Sums in iswitches: one switch, or a tree of them.

All workers do the same at the same time, so one worker stands for all: a segment's sum is on its way when the
contributions of all workers have come. A segment passes stages one after the other; each stage takes one segment at a
time. The worker is the driver's loop: it takes what has come, sends as many new segments, and waits. What a call takes
beside that stands before the first segment.
"""

from collections import deque
from math import ceil, prod
from typing import NamedTuple

from iswitch.config import MEMBERS_MAX, Config
from iswitch.estimate.costs import Costs
from iswitch.estimate.setting import Phases, Setting
from iswitch.wire import FRAME_BYTES, TAIL_BYTES, UPLINK_TAIL, uplink_elements

__all__ = [
    "GAP_BYTES", "MAXIMUM_BURST_BYTES", "Sum", "asynchronous_switch", "mask_bytes", "segments_in_burst", "switch",
    "switch_sum",
]  # fmt: skip

GAP_BYTES = 8 + 4 + 12
"""Preamble, FCS and gap."""
MAXIMUM_BURST_BYTES = 65507
"""The most bytes that the driver sends or receives by one call."""
_HEADER_BYTES = FRAME_BYTES - 42  # behind Ethernet, IPv4 and UDP


class Stage(NamedTuple):
    """A part of the way: seconds in which it is busy with a segment, and seconds until the segment is at the next."""

    service_s: float
    latency_s: float


class Sum(NamedTuple):
    """Seconds from the begin of a sum: the last contribution has left the card, the first result is here, the last
    result is in the vector. `busy_s`: processor time of the driver."""

    sent_s: float
    first_s: float
    last_s: float
    busy_s: float


def mask_bytes(workers: int) -> int:
    """Return the bytes by which results and uplinks would be longer if a job had more workers than the protocol allows.

    They have two sets of workers, in the sum and tainted, as masks of 32 bits.
    """
    return 2 * max(0, ceil(workers / 8) - MEMBERS_MAX // 8)


def segments_in_burst(elements: int) -> int:
    """Return the most segments, of so many elements, in a burst of the driver."""
    return max(1, MAXIMUM_BURST_BYTES // (_HEADER_BYTES + 4 * elements))


def stages(
    costs: Costs, fan_ins: tuple[int, ...], *, elements: int, rate_bps: float | None, uplink_bps: float | None = None
) -> tuple[list[Stage], list[Stage]]:
    """Return the stages from a worker's card to the sum, and back to the card.

    Parameters
    ----------
    costs : Costs
        Times of the parts.
    fan_ins : tuple of int
        Members of a switch on each level, from the workers' to the root.
    elements : int
        Elements in a segment.
    rate_bps, uplink_bps : float, optional
        Rate of the workers' cables, and of those between switches (default: the same).
    """
    cycle_s, cable_s, card_s = 1 / costs.clock_hz, costs.cable_us / 1e6, costs.card_us / 1e6
    masks = mask_bytes(prod(fan_ins))
    contribution, result = FRAME_BYTES + 4 * elements, FRAME_BYTES + 4 * elements + TAIL_BYTES + masks
    uplink = FRAME_BYTES + 8 * elements + UPLINK_TAIL.itemsize + masks

    def wire(size: int, latency_s: float, bps: float | None) -> Stage:
        return Stage(8 * (size + GAP_BYTES) / bps if bps else 0.0, latency_s)

    def words(size: int) -> int:
        return ceil(size / costs.bus_bytes)

    def engine(size: int, fan_in: int) -> Stage:
        return Stage(fan_in * words(size) * cycle_s, (costs.cycles + words(size)) * cycle_s)

    between = uplink_bps or rate_bps
    down: list[Stage] = []
    up = [wire(contribution, cable_s + card_s, rate_bps)]
    for level, fan_in in enumerate(fan_ins):
        if level:
            up.append(wire(uplink, cable_s, between))
            down[:0] = [wire(result, cable_s, between), engine(result, 1)]
        up.append(engine(uplink if level else contribution, fan_in))
    return up, [*down, wire(result, cable_s + card_s + costs.wake_us / 1e6, rate_bps)]


def switch_sum(
    size_bytes: int,
    fan_ins: tuple[int, ...],
    costs: Costs,
    *,
    rate_bps: float | None,
    uplink_bps: float | None = None,
    elements: int | None = None,
    window: int = Config.window,
) -> Sum:
    """Return the times of one sum.

    Parameters
    ----------
    size_bytes : int
        Size of the vector.
    fan_ins, costs, rate_bps, uplink_bps
        As of `stages`.
    elements : int, optional
        Elements in a segment. Default: as many as the default switch takes, in a tree or alone.
    window : int
        Segments in flight.
    """
    if elements is None:
        elements = uplink_elements(Config.elements) if len(fan_ins) > 1 else Config.elements
    up, down = stages(costs, fan_ins, elements=elements, rate_bps=rate_bps, uplink_bps=uplink_bps)
    way = [*up, *down]
    free = [0.0] * len(way)
    burst_most = segments_in_burst(elements)
    burst_s, datagram_s = costs.udp_burst_us / 1e6, costs.udp_datagram_us / 1e6
    total = -(-size_bytes // (4 * elements))
    arriving: deque[float] = deque()
    now_s = busy_s = costs.udp_call_us / 1e6
    first_s = sent_s = 0.0
    sent = done = 0
    while done < total:
        count = min(window - (sent - done), burst_most, total - sent)
        if count:
            now_s += burst_s + count * datagram_s
            busy_s += burst_s + count * datagram_s
            for _ in range(count):
                at_s = now_s
                for number, (service_s, latency_s) in enumerate(way):
                    at_s = max(at_s, free[number]) + service_s
                    free[number] = at_s
                    at_s += latency_s
                arriving.append(at_s)
            sent, sent_s = sent + count, free[0]
        now_s = max(now_s, arriving[0])
        first_s = first_s or now_s
        came = 0
        while arriving and arriving[0] <= now_s and came < burst_most:
            arriving.popleft()
            came += 1
        now_s += burst_s + came * datagram_s
        busy_s += burst_s + came * datagram_s
        done += came
    return Sum(sent_s, first_s, now_s, busy_s)


def switch(setting: Setting, *, window: int = Config.window) -> Phases:
    """Sum in the switch, or in a leaf of each rack and a root; each worker applies the sum to its weights."""
    found = switch_sum(setting.size_bytes, _fan_ins(setting), setting.costs, rate_bps=setting.rate_bps, window=window)
    times = (found.sent_s, max(found.sent_s, found.first_s), found.last_s)
    return Phases(setting.compute_s, times[0], times[1] - times[0], times[2] - times[1], setting.update_s)


def asynchronous_switch(setting: Setting, *, window: int = Config.window) -> float:
    """Return the seconds between updates of as many gradients as there are workers.

    The network sums a vector while the workers compute the next one, and the driver takes processor time from that.
    """
    found = switch_sum(setting.size_bytes, _fan_ins(setting), setting.costs, rate_bps=setting.rate_bps, window=window)
    return max(setting.compute_s + setting.update_s + found.busy_s, found.last_s)


def _fan_ins(setting: Setting) -> tuple[int, ...]:
    if setting.rack is None or setting.rack >= setting.workers:
        return (setting.workers,)
    return (setting.rack, -(-setting.workers // setting.rack))
