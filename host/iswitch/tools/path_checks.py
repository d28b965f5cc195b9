"""Checks of the network path to a switch, for `iswitch doctor`: reachability, round-trip time, loss, packet size, ToS,
window."""

import secrets
import statistics
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np

from iswitch.control.client import Control
from iswitch.control.switch_info import SwitchInfo
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.tools.probe import answers_arp
from iswitch.wire import ADDRESSES, HEADER, TAIL_BYTES, VERSION, Format, Register, Type

__all__ = [
    "Finding",
    "Mark",
    "ProbeTransport",
    "check_loss",
    "check_round_trips",
    "check_segment_size",
    "check_tos",
    "check_window",
    "explain_silence",
    "measure_round_trips",
]

_REQUESTS, _MEASUREMENT_S = 200, 5.0
_SEGMENT_TRIES, _SEGMENT_WAIT_S = 8, 0.25
_NO_JOB = 255
_DATAGRAM_OVERHEAD = 28  # IPv4 and UDP
_TOLERABLE_LOSS = 0.02


class Mark(StrEnum):
    """How good the result of a check is."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    Attributes
    ----------
    check : str
        Name of the check.
    mark : Mark
        How good the result is.
    figure : str
        What was measured or found.
    remedy : str
        What to do, as a sentence; may be empty if the mark is ok.
    """

    check: str
    mark: Mark
    figure: str
    remedy: str = ""


class ProbeTransport(Transport, Protocol):
    """A transport that records what the checks need. `Probe` has these attributes and describes them."""

    sent: int
    received: int
    tos: int
    refused: bool
    fault: str
    remedy: str
    peer: str

    @property
    def mtu(self) -> int: ...


def explain_silence(transport: ProbeTransport) -> Finding:
    """Return the reason why the switch does not answer, as far as this machine can determine it."""
    peer = transport.peer
    if transport.fault:
        return Finding("switch", Mark.BAD, f"cannot be reached: {transport.fault}", transport.remedy)
    if transport.refused:
        return Finding(
            "switch",
            Mark.BAD,
            "its host answers, but no program listens at this UDP port",
            "start the switch, or give the right port: a board has 26963, the emulator 27000 and the following ones",
        )
    try:
        known = answers_arp(peer, Path("/proc/net/arp").read_text())
    except OSError:
        known = None
    if known is False:
        return Finding(
            "switch",
            Mark.BAD,
            f"no host answers ARP requests for {peer}",
            "check the cable, the link LEDs, the power of the switch, and that its address is in the subnet of this "
            "interface",
        )
    return Finding(
        "switch",
        Mark.BAD,
        "does not answer, for an unknown reason" + (", although its host answers ARP requests" if known else ""),
        f"check address and port, firewalls on the path (`nft list ruleset`), and the route (`ip route get {peer}`)",
    )


def measure_round_trips(control: Control, transport: ProbeTransport) -> list[float]:
    """Measure round-trip times of READ requests.

    A request that was retransmitted is left out, because its reply may answer either copy (Karn's algorithm).

    Returns
    -------
    list of float
        Seconds, in ascending order.
    """
    round_trip_s: list[float] = []
    end = transport.now() + _MEASUREMENT_S
    for _ in range(_REQUESTS):
        sent, began = transport.sent, transport.now()
        control.read(Register.MAGIC)
        now = transport.now()
        if transport.sent == sent + 1:
            round_trip_s.append(now - began)
        if now > end:
            break
    return sorted(round_trip_s)


def check_round_trips(round_trip_s: list[float]) -> Finding:
    """Report the median and the 99th percentile of round-trip times in ascending order."""
    if not round_trip_s:
        return Finding(
            "round trip", Mark.WARNING, "longer than 50 ms", "look for congestion on the path, or use a nearer switch"
        )
    p99 = round_trip_s[min(len(round_trip_s) - 1, len(round_trip_s) * 99 // 100)]
    return Finding(
        "round trip",
        Mark.OK,
        f"median {1e3 * statistics.median(round_trip_s):.2f} ms, p99 {1e3 * p99:.2f} ms of {len(round_trip_s)} "
        "requests",
    )


def check_loss(sent: int, received: int) -> Finding:
    """Compare the numbers of requests and replies. Call it when late replies have arrived."""
    lost = sent - received
    if lost <= 0:
        return Finding("loss", Mark.OK, f"none of {sent} requests")
    return Finding(
        "loss",
        Mark.BAD if lost > _TOLERABLE_LOSS * sent else Mark.WARNING,
        f"{lost} of {sent} requests, or their replies, were lost",
        "sums stay right, but wait for retransmissions: look below for a counter that rises; if none rises, packets "
        "are lost between "
        "this machine and the port of the switch",
    )


def check_segment_size(transport: ProbeTransport, info: SwitchInfo) -> Finding:
    """Send a packet as long as the longest result, and wait for the NOTICE that the switch sends for it."""
    size = HEADER.itemsize + 4 * info.elements + TAIL_BYTES
    needed = size + _DATAGRAM_OVERHEAD
    token = secrets.randbits(32) | 1
    header = np.zeros(1, HEADER)
    for name, value in {
        "version_type": VERSION << 4 | Type.CONTRIBUTION,
        "job": _NO_JOB,
        "token": token,
        "format_flags": Format.INT32,
        "count": 1,
    }.items():
        header[name] = value
    datagram, buffer = header.tobytes().ljust(size, b"\0"), memoryview(bytearray(RECEIVE_BYTES))
    try:
        for _ in range(_SEGMENT_TRIES):
            transport.send(datagram, size)
            end = transport.now() + _SEGMENT_WAIT_S
            while (left := end - transport.now()) > 0:
                length, _ = transport.receive(buffer, left)
                if length >= HEADER.itemsize and _is_notice(np.frombuffer(buffer[: HEADER.itemsize], HEADER)[0], token):
                    return Finding("segment", Mark.OK, f"the longest packets, {needed} bytes of IPv4, reach the switch")
    except ValueError:
        fits = (transport.mtu - _DATAGRAM_OVERHEAD - HEADER.itemsize - TAIL_BYTES) // 4
        return Finding(
            "segment",
            Mark.BAD,
            f"packets of {needed} bytes of IPv4 do not fit the path's MTU of {transport.mtu}",
            f"set the MTU to {needed} or more on every interface of the path"
            + (f", or let all workers join with elements={fits}" if fits > 0 else ""),
        )
    return Finding(
        "segment",
        Mark.BAD,
        f"packets of {needed} bytes of IPv4 do not reach the switch, short ones do",
        f"a device on the path has a smaller MTU: set it to {needed} or more, or let all workers join with fewer "
        "`elements`",
    )


def _is_notice(header: np.void, token: int) -> bool:
    return int(header["version_type"]) & 15 == Type.NOTICE and int(header["token"]) == token


def check_tos(tos: int) -> Finding:
    """Check the Type of Service of the last reply, -1 if the kernel does not report it."""
    if tos > 0:
        return Finding(
            "ToS",
            Mark.WARNING,
            f"replies arrive with ToS {tos:#04x}, the switch sends 0",
            "a device on the path rewrites the ToS: let it do so in both directions, or results and contributions "
            "use different queues",
        )
    unseen = "the ToS of contributions cannot be seen from here"
    seen = (
        "replies arrive with 0, as the switch sends them"
        if tos == 0
        else "this kernel does not report the ToS of replies"
    )
    return Finding("ToS", Mark.OK, f"{seen}; {unseen}")


def check_window(info: SwitchInfo, round_trip_s: float, rate_gbps: float) -> Finding:
    """Compare the speed of the links with the throughput that the window allows: `window` segments per round trip."""
    flight = info.window * (ADDRESSES.itemsize + HEADER.itemsize + 4 * info.elements)
    gbps = flight * 8 / round_trip_s / 1e9
    figure = f"{info.window} segments in flight, {flight:,} bytes per round trip: at most {gbps:.2f} Gb/s"
    if gbps >= rate_gbps:
        return Finding("window", Mark.OK, figure)
    return Finding(
        "window",
        Mark.WARNING,
        f"{figure}, but links have {rate_gbps:g} (`--rate`)",
        "shorten the path, or build the switch with a larger `window` or `elements` (the emulated switch itself is "
        "slow)",
    )
