"""A software switch at UDP sockets."""

import ctypes
import socket
from collections.abc import Sequence
from ctypes import byref, c_int, c_uint32
from types import TracebackType
from typing import Self

import numpy as np

from iswitch.golden.interface.message import Source
from iswitch.native.loader import library
from iswitch.native.records import ServerEvent
from iswitch.switch.software_switch import SOURCE_PACKER, SoftwareSwitch
from iswitch.wire import PortCounter

__all__ = ["SwitchServer"]

LOOK_MS = 100
"""The longest time between two looks at signals."""


class SwitchServer:
    """Serves a software switch: each socket is a port, and each datagram the UDP payload of a frame.

    A client is known by its address; its MAC address is made from that.

    Parameters
    ----------
    switch : SoftwareSwitch
        The switch, with as many ports as there are sockets.
    sockets : sequence of socket.socket
        Bound UDP sockets. The server closes them.
    """

    def __init__(self, switch: SoftwareSwitch, sockets: Sequence[socket.socket]) -> None:
        if len(sockets) != switch.config.ports:
            raise ValueError(
                f"SwitchServer sockets must be {switch.config.ports}, one for each port, not {len(sockets)}"
            )
        self.switch, self.sockets = switch, list(sockets)
        self._library = library()
        descriptors = (c_int * len(sockets))(*(opened.fileno() for opened in sockets))
        self._server = self._library.server_open(
            byref(switch.native_state),
            descriptors,
            len(sockets),
            np.asarray(switch.outcomes).ctypes.data,
            np.asarray(switch.port_counters).ctypes.data,
        )
        if not self._server:
            raise MemoryError("there is no memory for a software switch")
        self._source, self._length = ctypes.create_string_buffer(SOURCE_PACKER.size), c_uint32()
        self._stopping = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets. Repeated calls have no effect."""
        if self._server:
            self._library.server_close(self._server)
            self._server = None
            for opened in self.sockets:
                opened.close()

    def stop(self) -> None:
        """Make `serve` return soon. May be called by a signal handler."""
        self._stopping = True

    def serve(self) -> None:
        """Serve until `stop`."""
        while not self._stopping:
            self.step()

    def step(self, timeout_ms: int = LOOK_MS) -> None:
        """Serve until a message was given to the golden switch, or for this time."""
        event = self._library.server_run(self._server, timeout_ms)
        self.switch.keep_silences(self._library.server_now_us())
        if event != ServerEvent.PAYLOAD:
            return
        address = self._library.server_payload(self._server, self._source, byref(self._length))
        payload = ctypes.string_at(address, self._length.value)
        ip, udp_port, port, mac = SOURCE_PACKER.unpack(self._source.raw)
        now_us = self._library.server_now_us()
        for to, answer in self.switch.receive_payload(Source(port, mac, ip, udp_port), payload, now_us):
            self._send(to, answer)

    def _send(self, to: Source, payload: bytes) -> None:
        try:
            self.sockets[to.port].sendto(
                payload, socket.MSG_DONTWAIT, (socket.inet_ntoa(to.ip.to_bytes(4, "big")), to.udp_port)
            )
        except OSError:  # the frame is lost, as on a wire
            self.switch.port_counters[to.port][PortCounter.TX_DROP_REPLY] += 1
        else:
            self.switch.port_counters[to.port][PortCounter.TX_FRAMES] += 1
