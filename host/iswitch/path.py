"""The way to a switch: who answers, how fast, how surely, and in what size. Checks of `iswitch doctor`."""

import secrets
import statistics
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np

from iswitch.config import Config
from iswitch.control import Control
from iswitch.probe import neighbour
from iswitch.transport import RECEIVE_BYTES, Transport
from iswitch.wire import ADDRESSES, HEADER, TAIL_BYTES, VERSION, Format, Register, Type

__all__ = ["Finding", "Mark", "Watched", "delay", "full_segment", "loss", "round_trips", "silence", "tos", "window"]

_READS, _READING_S = 200, 5.0
_SEGMENT_TRIES, _SEGMENT_WAIT_S = 8, 0.25
_NO_JOB = 255
_DATAGRAM_OVERHEAD = 28  # IPv4 and UDP
_TOLERABLE_LOSS = 0.02


class Mark(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """What a check found: a figure, and if it is not ok (or for a counter), a sentence on what to do."""

    check: str
    mark: Mark
    figure: str
    remedy: str = ""


class Watched(Transport, Protocol):
    """What the checks need to know of a transport: see `Probe`."""

    sent: int
    received: int
    tos: int
    refused: bool
    fault: str
    remedy: str
    peer: str

    @property
    def mtu(self) -> int: ...


def silence(watched: Watched) -> Finding:
    """Why nothing comes back, as far as this machine can know."""
    peer = watched.peer
    if watched.fault:
        return Finding("switch", Mark.BAD, f"cannot be reached: {watched.fault}", f"check address, interface and route (`ip route get {peer}`)")
    if watched.refused:
        return Finding("switch", Mark.BAD, "its host is there, but nobody listens at the port",
                       "start the switch, or give the right port: a board has 26963, the emulator 27000 and the following")
    try:
        known = neighbour(peer, Path("/proc/net/arp").read_text())
    except OSError:
        known = None
    if known is False:
        return Finding("switch", Mark.BAD, f"nobody answers ARP requests for {peer}",
                       "check that the cable is in, the link up, the switch on, and its address in the subnet of this interface")
    return Finding("switch", Mark.BAD, "does not answer, and nothing says why" + (", though its host answers ARP" if known else ""),
                   f"check address and port, firewalls on the way (`nft list ruleset`), and the route (`ip route get {peer}`)")


def round_trips(control: Control, watched: Watched) -> list[float]:
    """Seconds, rising, of the READs that were answered before they were repeated: else one cannot tell what was answered (Karn)."""
    trips: list[float] = []
    end = watched.now() + _READING_S
    for _ in range(_READS):
        sent, began = watched.sent, watched.now()
        control.read(Register.MAGIC)
        now = watched.now()
        if watched.sent == sent + 1:
            trips.append(now - began)
        if now > end:
            break
    return sorted(trips)


def delay(trips: list[float]) -> Finding:
    if not trips:
        return Finding("round trip", Mark.WARNING, "longer than 50 ms", "look for congestion on the way, and for a nearer switch")
    p99 = trips[min(len(trips) - 1, len(trips) * 99 // 100)]
    return Finding("round trip", Mark.OK, f"median {1e3 * statistics.median(trips):.2f} ms, p99 {1e3 * p99:.2f} ms of {len(trips)} READs")


def loss(sent: int, received: int) -> Finding:
    """Of READs, each of which has one answer; what was late has come by now."""
    lost = sent - received
    if lost <= 0:
        return Finding("loss", Mark.OK, f"none of {sent} READs")
    return Finding("loss", Mark.BAD if lost > _TOLERABLE_LOSS * sent else Mark.WARNING, f"{lost} of {sent} READs or their answers",
                   "sums stay right, but wait for repeats: look below for a counter that rises; if none does, they are lost between here and the "
                   "switch's port")


def full_segment(watched: Watched, config: Config) -> Finding:
    """Sends what is as long as the longest result, and waits for the NOTICE that it arrived."""
    size = HEADER.itemsize + 4 * config.elements + TAIL_BYTES
    needed = size + _DATAGRAM_OVERHEAD
    token = secrets.randbits(32) | 1
    header = np.zeros(1, HEADER)
    for name, value in {"version_type": VERSION << 4 | Type.CONTRIBUTION, "job": _NO_JOB, "token": token, "format_flags": Format.INT32,
                        "count": 1}.items():
        header[name] = value
    datagram, buffer = header.tobytes().ljust(size, b"\0"), memoryview(bytearray(RECEIVE_BYTES))
    try:
        for _ in range(_SEGMENT_TRIES):
            watched.send(datagram, size)
            end = watched.now() + _SEGMENT_WAIT_S
            while (left := end - watched.now()) > 0:
                length, _ = watched.receive(buffer, left)
                if length >= HEADER.itemsize and _notices(np.frombuffer(buffer[:HEADER.itemsize], HEADER)[0], token):
                    return Finding("segment", Mark.OK, f"{needed} bytes of IPv4, the longest there are, arrive whole at the switch")
    except ValueError:
        fits = (watched.mtu - _DATAGRAM_OVERHEAD - HEADER.itemsize - TAIL_BYTES) // 4
        return Finding("segment", Mark.BAD, f"{needed} bytes of IPv4 do not fit the path's MTU of {watched.mtu}",
                       f"set the MTU to {needed} or more on every interface of the path"
                       + (f", or let all workers join with elements={fits}" if fits > 0 else ""))
    return Finding("segment", Mark.BAD, f"{needed} bytes of IPv4 do not arrive, short frames do",
                   f"a device on the path has a smaller MTU: set it to {needed} or more, or let all workers join with fewer `elements`")


def _notices(header: np.void, token: int) -> bool:
    return int(header["version_type"]) & 15 == Type.NOTICE and int(header["token"]) == token


def tos(tos: int) -> Finding:
    if tos > 0:
        return Finding("ToS", Mark.WARNING, f"replies arrive with ToS {tos:#04x}, the switch sends 0",
                       "a device on the way rewrites it: do the same for both directions, or results and contributions queue unlike each other")
    unseen = "with what ToS contributions arrive cannot be seen from here"
    seen = "replies arrive with 0, as the switch sends them" if tos == 0 else "this kernel does not tell that of replies"
    return Finding("ToS", Mark.OK, f"{seen}; {unseen}")


def window(config: Config, trip_s: float, rate_gbps: float) -> Finding:
    """What a window lets through: as many segments in flight, each for a round trip."""
    flight = config.window * (ADDRESSES.itemsize + HEADER.itemsize + 4 * config.elements)
    gbps = flight * 8 / trip_s / 1e9
    figure = f"{config.window} segments in flight, {flight:,} bytes a round trip: at most {gbps:.2f} Gb/s"
    if gbps >= rate_gbps:
        return Finding("window", Mark.OK, figure)
    return Finding("window", Mark.WARNING, f"{figure}, where links have {rate_gbps:g}",
                   "shorten the way, or build the switch with a larger `window` or `elements` (an emulated switch is slow in itself)")
