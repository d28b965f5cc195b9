"""A receive ring of a packet socket: the kernel writes frames into memory that this process shares.

The ring is TPACKET_V2, one slot a frame, because that wakes the reader at each frame. TPACKET_V3 gathers frames in
blocks, and wakes the reader only when a block is full or its timer expires, after 1 ms or more: several times as long
as a sum takes (`python -m sim.bench.packet_wakeups`). See linux/Documentation/networking/packet_mmap.rst.
"""

import mmap
import socket
import struct
import threading
from typing import NamedTuple

import numpy as np

from iswitch.native.records import Exchange

__all__ = ["ArrivedFrame", "PacketRing"]

_SOL_PACKET, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION, _PACKET_VNET_HDR = 263, 5, 6, 10, 15
_TPACKET_V2 = 1
_SLOT = struct.Struct("=IIIHHIIHH4x")  # tpacket2_hdr
_SOCKADDR_LL_BYTES, _ALIGNMENT = 20, 16
_RESERVED_BYTES = 64
"""Bytes of a slot in front of an Ethernet frame, at most: the slot's header, an address, the virtio header."""
_BLOCK_BYTES, _BLOCKS = 1 << 20, 8
_STATUS_USER, _STATUS_CHECKSUM_LATER, _STATUS_CHECKSUM_VALID = 0x1, 0x8, 0x80
_STATUS_KERNEL = 0


class ArrivedFrame(NamedTuple):
    """A frame in a slot. `burst_header`: the virtio header, empty if the ring has none. `checked`: the UDP checksum was
    found right, or the frame is from this machine and has none yet. `truncated`: the slot lacks the frame's end."""

    frame: memoryview
    burst_header: memoryview
    checked: bool
    truncated: bool


class PacketRing:
    """The ring of one socket.

    Parameters
    ----------
    owner : socket.socket
        A packet socket, not bound yet.
    frame_bytes : int
        Bytes of the longest frame.
    burst_header_bytes : int
        Bytes of the virtio header in front of each frame; 0: none.
    """

    def __init__(self, owner: socket.socket, frame_bytes: int, *, burst_header_bytes: int):
        self._socket, self._header_bytes = owner, burst_header_bytes
        self.slot_bytes = _aligned(_aligned(_SLOT.size + _SOCKADDR_LL_BYTES) + _RESERVED_BYTES + frame_bytes)
        self.slots_per_block = _BLOCK_BYTES // self.slot_bytes
        self.slots = self.slots_per_block * _BLOCKS
        owner.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        if burst_header_bytes:
            owner.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        request = struct.pack("=4I", _BLOCK_BYTES, _BLOCKS, self.slot_bytes, self.slots)
        owner.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        self._memory = mmap.mmap(owner.fileno(), _BLOCK_BYTES * _BLOCKS)
        self._view = memoryview(self._memory)
        self._address = np.frombuffer(self._memory, np.uint8).ctypes.data
        self._barrier = threading.Lock()
        self._dropped = 0
        self.next = 0
        """The slot that the kernel fills next, or has filled."""

    def _slot_at(self) -> int:
        block, slot = divmod(self.next, self.slots_per_block)
        return block * _BLOCK_BYTES + slot * self.slot_bytes

    def peek(self) -> ArrivedFrame | None:
        """Return the next frame, or None if none has come. It stays in the ring until `release`."""
        at = self._slot_at()
        if not _SLOT.unpack_from(self._memory, at)[0] & _STATUS_USER:
            return None
        with self._barrier:  # orders the reads of the frame behind that of its status
            status, length, stored, frame_at, *_ = _SLOT.unpack_from(self._memory, at)
        begin = at + frame_at
        return ArrivedFrame(
            self._view[begin : begin + stored],
            self._view[begin - self._header_bytes : begin],
            bool(status & (_STATUS_CHECKSUM_LATER | _STATUS_CHECKSUM_VALID)),
            stored < length,
        )

    def release(self) -> None:
        """Give the slot of the next frame back to the kernel. Views of the frame are void."""
        with self._barrier:
            struct.pack_into("=I", self._memory, self._slot_at(), _STATUS_KERNEL)
        self.next = (self.next + 1) % self.slots

    def lend(self, state: Exchange) -> None:
        """Let C take the next frames."""
        state.ring, state.slot, state.slots = self._address, self.next, self.slots
        state.block_bytes, state.slot_bytes = _BLOCK_BYTES, self.slot_bytes
        state.slots_per_block = self.slots_per_block

    def settle(self, state: Exchange) -> None:
        """Go on behind the frames that C has taken."""
        self.next = state.slot

    @property
    def dropped(self) -> int:
        """Frames that the kernel has dropped because the ring was full."""
        self._dropped += struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
        return self._dropped

    def close(self) -> None:
        """Release the memory. The caller holds no views of frames."""
        self._view.release()
        self._memory.close()


def _aligned(length: int) -> int:
    return length + _ALIGNMENT - 1 & -_ALIGNMENT
