"""Socket filters (classic BPF, linux/Documentation/networking/filter.rst): which frames a socket receives."""

import ctypes
import socket
import struct

from iswitch.driver.ethernet import Endpoints

__all__ = ["NOTHING", "attach", "frames_between"]

_SO_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _JUMP_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x28, 0x30, 0x15, 0x45, 0x06
_ALL, _NONE = 0x40000, 0
_EXTENSIONS = 0xFFFFF000
_PACKET_TYPE = _EXTENSIONS + 4
_TO_THIS_HOST = 0
_ETHERNET_BYTES = 14
_FRAGMENT = 0x3FFF

Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true and if false, operand."""

NOTHING: tuple[Instruction, ...] = ((_RETURN, 0, 0, _NONE),)
"""No frame passes."""


def frames_between(endpoints: Endpoints) -> tuple[Instruction, ...]:
    """Return the filter of a packet socket for IPv4 frames from the switch to this machine.

    Frames of other programs must not wake the driver. Frames to other MAC addresses do not pass, nor those of a VLAN,
    because the kernel counts them as frames to another host. Fragments and frames with IPv4 options do, whatever their
    ports are, so that the driver counts them.
    """
    at = _ETHERNET_BYTES
    (source,) = struct.unpack("!I", endpoints.peer_ip)
    (destination,) = struct.unpack("!I", endpoints.ip)
    checks = [
        (_LOAD_WORD, _PACKET_TYPE, _JUMP_EQUAL, _TO_THIS_HOST, "continue"),
        (_LOAD_BYTE, at + 9, _JUMP_EQUAL, socket.IPPROTO_UDP, "continue"),
        (_LOAD_WORD, at + 12, _JUMP_EQUAL, source, "continue"),
        (_LOAD_WORD, at + 16, _JUMP_EQUAL, destination, "continue"),
        (_LOAD_HALF, at + 6, _JUMP_BITS, _FRAGMENT, "accept"),
        (_LOAD_BYTE, at, _JUMP_EQUAL, 0x45, "continue or accept"),
        (_LOAD_WORD, at + 20, _JUMP_EQUAL, endpoints.peer_udp_port << 16 | endpoints.udp_port, "continue"),
    ]
    accept = 2 * len(checks)
    drop = accept + 1
    made: list[Instruction] = []
    for load, offset, jump, operand, action in checks:
        made.append((load, 0, 0, offset))
        following = len(made) + 1
        to_accept, to_drop = accept - following, drop - following
        skips = {"continue": (0, to_drop), "accept": (to_accept, 0), "continue or accept": (0, to_accept)}[action]
        made.append((jump, *skips, operand))
    return (*made, (_RETURN, 0, 0, _ALL), (_RETURN, 0, 0, _NONE))


def attach(filtered: socket.socket, program: tuple[Instruction, ...]) -> None:
    """Let a socket receive only what passes a filter."""
    code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    described = struct.pack("HP", len(program), ctypes.addressof(code))
    filtered.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
