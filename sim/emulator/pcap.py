"""Writes captures that Wireshark, tcpdump and scapy read: classic pcap with nanosecond times, Ethernet."""

import struct
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Capture"]

NANOSECOND_MAGIC = 0xA1B23C4D
LINK_ETHERNET = 1
SNAP_BYTES = 65536


class Capture:
    """A capture file of whole frames. `epoch_ns` is the time 0 of its writer, in nanoseconds from 1970."""

    def __init__(self, path: Path, epoch_ns: int = 0):
        self._epoch_ns = epoch_ns
        self._file = path.open("wb")
        self._file.write(struct.pack("<IHHiIII", NANOSECOND_MAGIC, 2, 4, 0, 0, SNAP_BYTES, LINK_ETHERNET))

    def write(self, frame: bytes, time_ns: int) -> None:
        """Add a frame, without FCS."""
        self._file.write(struct.pack("<IIII", *divmod(self._epoch_ns + time_ns, 1_000_000_000), len(frame), len(frame)))
        self._file.write(frame)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
