"""The wire format as a C header, for clients in other languages: `python -m iswitch.wire.c_header`.

The records are packed structs, and their fields hold what is on the wire, so a little-endian machine copies bytes into
them. Sizes and offsets are asserted, so a compiler that lays a struct out otherwise refuses the header.
"""

import sys
from enum import Enum

import numpy as np

from iswitch.wire.collective import CollectiveKind
from iswitch.wire.control import ACK, CONTROL, NO_MEMBER, AckRegister, Action, Reason
from iswitch.wire.frames import (
    CONTRIBUTION_HEADER,
    FLAGS_SHIFT,
    HEADER,
    RESULT_HEADER,
    TAIL,
    UDP_PORT,
    VERSION,
    ContributionFlag,
    Format,
    ResultFlag,
    Type,
)
from iswitch.wire.registers import MAGIC, Register
from iswitch.wire.states import JobState, MemberState, Mode

__all__ = ["c_header"]

_RECORDS = {
    "header": HEADER,
    "contribution_header": CONTRIBUTION_HEADER,
    "result_header": RESULT_HEADER,
    "tail": TAIL,
    "control": CONTROL,
    "ack": ACK,
}
_ENUMERATIONS: dict[str, type[Enum]] = {
    "type": Type,
    "format": Format,
    "contribution_flag": ContributionFlag,
    "result_flag": ResultFlag,
    "action": Action,
    "reason": Reason,
    "collective": CollectiveKind,
    "mode": Mode,
    "job_state": JobState,
    "member_state": MemberState,
    "register": Register,
    "ack_register": AckRegister,
}
_CONSTANTS = {
    "VERSION": VERSION,
    "UDP_PORT": UDP_PORT,
    "FLAGS_SHIFT": FLAGS_SHIFT,
    "NO_MEMBER": NO_MEMBER,
    "MAGIC": MAGIC,
}
_KINDS = {"u": "uint", "i": "int"}


def _struct(name: str, record: np.dtype[np.void]) -> list[str]:
    lines, checks = [f"struct iswitch_{name} {{"], []
    assert record.fields is not None
    for field in record.names or ():
        dtype, offset = record.fields[field][:2]
        base = dtype.base
        number = f"{_KINDS[base.kind]}{8 * base.itemsize}_t {field}{''.join(f'[{size}]' for size in dtype.shape)};"
        lines.append(f"    {number}{'  // big-endian' if base.byteorder == '>' else ''}")
        checks.append(f'_Static_assert(offsetof(struct iswitch_{name}, {field}) == {offset}, "{name}.{field}");')
    checks.append(f'_Static_assert(sizeof(struct iswitch_{name}) == {record.itemsize}, "{name}");')
    return [*lines, "} __attribute__((packed));", *checks, ""]


def _enumeration(name: str, members: type[Enum]) -> list[str]:
    # `__members__` has aliases, too: WANT is REQUIRES_ALL.
    values = [
        f"    ISWITCH_{name.upper()}_{member} = {int(value.value)}," for member, value in members.__members__.items()
    ]
    return [f"enum iswitch_{name} {{", *values, "};", ""]


def c_header() -> str:
    """Return the header: constants, enumerations, records of the frames between a worker and the switch."""
    lines = [
        "// The wire format of iswitch, written by `python -m iswitch.wire.c_header`. docs/protocol.md explains it.",
        "#pragma once",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__",
        '#error "fields are little-endian on the wire unless their comment says big-endian"',
        "#endif",
        "",
        *(f"#define ISWITCH_{name} {value:#x}" for name, value in _CONSTANTS.items()),
        "",
    ]
    for name, members in _ENUMERATIONS.items():
        lines += _enumeration(name, members)
    for name, record in _RECORDS.items():
        lines += _struct(name, record)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(c_header())
