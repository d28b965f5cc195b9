"""A transport of whole Ethernet frames: a packet socket (AF_PACKET) with a receive ring, beside a UDP socket.

The UDP socket holds the port, resolves the next hop (ARP) by the datagrams that it sends now and then, and learns of
ICMP messages. The packet socket sends and receives the frames.
"""

import errno
import os
import re
import socket
import time
from collections import Counter
from typing import NoReturn

import numpy as np

from iswitch.driver.address import send_failure
from iswitch.driver.ethernet import (
    BURST_HEADER_BYTES,
    IP_UDP_BYTES,
    BurstHeader,
    Endpoints,
    Fault,
    frame_headers,
    payload_of,
)
from iswitch.driver.next_hop import Interface, Route, find_interface, find_mac, find_route
from iswitch.driver.packet_filter import attach, frames_between
from iswitch.driver.packet_ring import ArrivedFrame, PacketRing
from iswitch.driver.ready import Readiness
from iswitch.driver.transport import Buffer, RealTimeTransport
from iswitch.driver.udp import UdpTransport
from iswitch.native.records import Exchange

__all__ = ["PacketTransport"]

_ETH_P_IP = 0x0800
_LONGEST_IP_BYTES = 65535
_ETHERNET_BYTES = 14
_REFRESH_S = 5.0
"""The longest use of a MAC address. Then one burst leaves by the UDP socket, so that the kernel checks the next hop as
it does for its own traffic."""
_BURSTS_SINCE = (6, 2)
"""The first version of Linux whose packet sockets describe frames that carry several datagrams."""
_DATAGRAM_BYTES_MOST = 9216
"""The longest datagram of a switch: a jumbo frame."""

_PLAIN = bytes(BURST_HEADER_BYTES)
"""The virtio header of a frame that is sent as it is."""


class PacketTransport(RealTimeTransport):
    """Sends and receives the datagrams of the protocol as whole Ethernet frames, by a packet socket of Linux.

    It needs the capability CAP_NET_RAW. Pass it to a worker: `Worker(transport=PacketTransport("10.0.0.1"), ...)`.

    Parameters
    ----------
    address : str
        Address of the switch: "host:port" or "host". The route to it must leave by an Ethernet interface.
    no_offload : bool
        If True, send frame by frame, with checksums of this class.

    Attributes
    ----------
    address : str
        As passed.
    gso, gro : bool
        True if bursts are sent, and received, as one long frame.
    ignored : collections.Counter
        Number of frames that were ignored, by `Fault`.
    fault : str
        Why the last datagram could not be sent, and a remedy, as the end of a sentence; "" if it was sent.

    Raises
    ------
    PermissionError
        If the process lacks CAP_NET_RAW.
    SwitchUnreachableError
        If the host name cannot be resolved, or this machine cannot send to the host.
    TypeError, ValueError
        If the address has the wrong form, or the path to it has no Ethernet frames.
    """

    def __init__(self, address: str, *, no_offload: bool = False):
        self.address = address
        self.gro = _kernel_version() >= _BURSTS_SINCE
        self.gso = self.gro and not no_offload
        self.ignored: Counter[Fault] = Counter()
        self.fault = ""
        self._socket = _packet_socket()
        try:
            self._kernel = UdpTransport(address, no_offload=no_offload)
            try:
                self._find_path()
                self._open()
            except BaseException:
                self._kernel.close()
                raise
        except BaseException:
            self._socket.close()
            raise
        self._readiness = Readiness(self._socket.fileno())

    def _find_path(self) -> None:
        """Look up the addresses and the interface. Raises SwitchUnreachableError, ValueError."""
        self._kernel.drop_received()
        (ip, udp_port), (peer_ip, peer_udp_port) = self._kernel.addresses
        self.endpoints = Endpoints(socket.inet_aton(ip), udp_port, socket.inet_aton(peer_ip), peer_udp_port)
        self._route: Route = find_route(self.endpoints.peer_ip)
        self.interface: Interface = find_interface(self._route.interface)
        self._payload_max = self.interface.mtu - IP_UDP_BYTES
        self._mac, self._mac_until, self._headers = b"", 0.0, dict[tuple[int, int], bytes]()

    def _open(self) -> None:
        """Make the ring, and receive from now on."""
        attach(self._socket, frames_between(self.endpoints))
        header_bytes = BURST_HEADER_BYTES if self.gro else 0
        frame_bytes = _ETHERNET_BYTES + (_LONGEST_IP_BYTES if self.gro else self.interface.mtu)
        self._ring = PacketRing(self._socket, frame_bytes, burst_header_bytes=header_bytes)
        self._socket.bind((self.interface.name, _ETH_P_IP))

    def reopen(self) -> None:
        """Send and receive by new sockets, for this machine's address may have changed. The descriptor is the same."""
        self._kernel.reopen()
        self._find_path()
        self._ring.close()
        with _packet_socket() as fresh:
            os.dup2(fresh.fileno(), self._socket.fileno(), inheritable=False)
        self._open()

    # Sending

    def burst_segments(self, segment_bytes: int) -> int:
        return self._kernel.burst_segments(segment_bytes)

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        """Send a burst. If a datagram cannot be sent, it is lost, and `fault` says why.

        Parameters
        ----------
        burst : bytes, bytearray or memoryview
            Datagrams end to end.
        segment_bytes : int
            Bytes of a datagram; the last one may be shorter.

        Raises
        ------
        ValueError
            If a datagram does not fit the interface's MTU.
        OSError
            If the transport is closed.
        """
        view = memoryview(burst).cast("B")
        if min(len(view), segment_bytes) > self._payload_max:
            self._raise_too_long(None)
        if time.monotonic() >= self._mac_until:
            self._send_by_kernel(view, segment_bytes)
            return
        step = len(view) if self.gso else segment_bytes
        for at in range(0, len(view), step):
            self._send_frame(view[at : at + step], segment_bytes)

    def _send_by_kernel(self, view: memoryview, segment_bytes: int) -> None:
        """Send by the UDP socket, and look up the next hop, which the kernel may still be looking for."""
        self._kernel.send(view, segment_bytes)
        self.fault = self._kernel.fault
        mac = find_mac(self._route) or b""
        if mac != self._mac:
            self._mac, self._headers = mac, {}
            if mac:
                self._empty_headers = np.frombuffer(self._burst_headers(b"", 0), np.uint8)
        self._mac_until = time.monotonic() + _REFRESH_S if mac else 0.0

    def _send_frame(self, payload: memoryview, segment_bytes: int) -> None:
        try:
            self._socket.sendmsg([self._headers_of(payload, segment_bytes), payload])
            self.fault = ""
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                self._raise_too_long(error)
            self._record_fault(error)

    def _record_fault(self, error: OSError) -> None:
        """Record why a frame is lost. Raises OSError if the transport is closed."""
        if error.errno == errno.EBADF:
            raise error
        self.fault = "; ".join(send_failure(error, self._kernel.addresses[1][0]))

    def _headers_of(self, payload: memoryview, segment_bytes: int) -> bytes:
        """Return what precedes a payload. With a partial checksum that depends on the sizes alone, of which there are
        few."""
        if not self.gso:
            headers = frame_headers(self.endpoints, (self._mac, self.interface.mac), payload)
            return (_PLAIN if self.gro else b"") + headers
        kept = self._headers.get((len(payload), segment_bytes))
        if kept is None:
            kept = self._headers[len(payload), segment_bytes] = self._burst_headers(payload, segment_bytes)
        return kept

    def _burst_headers(self, payload: Buffer, segment_bytes: int) -> bytes:
        """Return the headers of a frame whose checksum the kernel completes."""
        burst = BurstHeader(segment_bytes if len(payload) > segment_bytes else 0)
        macs = (self._mac, self.interface.mac)
        return burst.build() + frame_headers(self.endpoints, macs, payload, partial_checksum=True)

    def _raise_too_long(self, error: OSError | None) -> NoReturn:
        raise ValueError(
            "a segment does not fit the MTU of the path to the switch: join with fewer `elements`, on all workers"
        ) from error

    # Receiving

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        found = self._gather(into)
        if not found[0] and timeout_s > 0 and self._readiness.wait(timeout_s):
            found = self._gather(into)
        if not found[0]:
            self._kernel.receive(into, 0.0)  # no datagram passes its filter, but an ICMP message does
            self._clear_error()
        return found

    def _clear_error(self) -> None:
        """Record an error of the packet socket. Until then it counts as readable, and no wait would last."""
        if number := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._record_fault(OSError(number, os.strerror(number)))

    def _gather(self, into: memoryview) -> tuple[int, int]:
        """Put the datagrams that have come into one burst, as long as their sizes allow. (0, 0): there is none."""
        length = segment_bytes = 0
        while arrived := self._ring.peek():
            unwrapped = self._unwrap(arrived)
            if unwrapped is not None:
                payload, payload_segment = unwrapped
                size = len(payload)
                is_last_short = size == payload_segment < segment_bytes
                if (
                    segment_bytes
                    and not (payload_segment == segment_bytes or is_last_short)
                    or length + size > len(into)
                ):
                    break  # it begins the next burst
                into[length : length + size] = payload
                length, segment_bytes = length + size, segment_bytes or payload_segment
            self._ring.release()
            if length and (length % segment_bytes or len(into) - length < _DATAGRAM_BYTES_MOST):
                break
        if length:
            self._kernel.record(received=True, error=0)
            self.fault = ""
        return length, segment_bytes

    def _unwrap(self, arrived: ArrivedFrame) -> tuple[memoryview, int] | None:
        """Return the datagrams in a frame and the bytes of each, or count the frame as ignored and return None."""
        segment_bytes, fault = 0, Fault.BURST if arrived.truncated else None
        if fault is None and self.gro:
            try:
                segment_bytes = BurstHeader.parse(arrived.burst_header).segment_bytes
            except ValueError:
                fault = Fault.BURST
        if fault is None:
            payload = payload_of(arrived.frame, self.endpoints, checked=arrived.checked)
            if isinstance(payload, memoryview):
                return (payload, min(segment_bytes or len(payload), len(payload))) if payload else None
            fault = payload
        self.ignored[fault] += 1
        return None

    # The sockets, which C uses too

    @property
    def offloads(self) -> bool:
        """True if bursts pass the kernel as one frame in both directions."""
        return self.gso and self.gro

    def accepts(self, segment_bytes: int) -> bool:
        """Return True if another user of the socket can send datagrams of this size now: they fit the MTU, and the next
        hop need not be looked up."""
        return segment_bytes <= self._payload_max and time.monotonic() < self._mac_until

    def lend(self, state: Exchange) -> None:
        """Let C use the socket and the ring. It sends with these headers."""
        state.frame_headers = self._empty_headers.ctypes.data
        self._ring.lend(state)

    def settle(self, state: Exchange) -> None:
        """Go on behind the frames that C has taken."""
        self._ring.settle(state)
        if not state.received:
            self._clear_error()

    def record(self, *, received: bool, error: int) -> None:
        """As `UdpTransport.record`."""
        if received:
            self._kernel.record(received=True, error=0)
            self.fault = ""
        if error:
            self._record_fault(OSError(error, os.strerror(error)))

    @property
    def refused(self) -> bool:
        """True if the switch's host has reported that no program listens at the port."""
        return self._kernel.refused

    @property
    def receive_buffer_bytes(self) -> int:
        """Bytes that the ring holds, as `in_flight_max` counts them: each slot has a packet and as much overhead."""
        return 2 * self.interface.mtu * self._ring.slots

    @property
    def dropped(self) -> int:
        """Frames that the kernel has dropped because the ring was full."""
        return self._ring.dropped

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        self._kernel.close()
        self._ring.close()


def _kernel_version() -> tuple[int, ...]:
    """Return the version of Linux: (6, 2) for "6.2.0-rc1"."""
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


def _packet_socket() -> socket.socket:
    """Open a packet socket that receives nothing yet."""
    if not hasattr(socket, "AF_PACKET"):
        raise OSError(errno.EAFNOSUPPORT, "only Linux has packet sockets: leave out the transport, for UDP sockets")
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except PermissionError as error:
        raise PermissionError(
            errno.EPERM,
            "a packet socket needs the capability CAP_NET_RAW, which this process lacks: start the program by `sudo "
            "setpriv --reuid=$USER --init-groups --inh-caps=+net_raw --ambient-caps=+net_raw python ...`, a container "
            "with `--cap-add=NET_RAW`, or leave out the transport, for UDP sockets",
        ) from error
