"""The Wireshark dissector: Lua, made of the records and enumerations of `iswitch.wire`.

`dissector.lua` beside this file is the part that is the same for every protocol version. The tables before it, with all
names, offsets, widths and numbers, are written here.
"""

from collections.abc import Iterator, Mapping
from importlib import resources
from typing import NamedTuple

import numpy as np

from iswitch.capture.layout import ENUMS, FLAGS, HEADERS, LAYOUTS, REQUESTS, Layout, flag_kind
from iswitch.distribution import version
from iswitch.wire import FLAGS_SHIFT, HEADER, POSITION_BITS, TYPE_BITS, UDP_PORT, VERSION, Type
from iswitch.wire.collective import COLLECTIVE_SEGMENTS_BITS
from iswitch.wire.formats import FORMATS
from iswitch.wire.replay import REPLAY_HEADER, Kind

__all__ = ["dissector"]

_HEX = {"token", "job_token", "nonce", "key", "operator_key", "challenge", "digest", "identity", "complement"}
_HEX |= {"address", "members", "tainted", "ranks", "fragments", "flags"}
"""Fields that are shown in hexadecimal: random numbers, sets, addresses of registers."""
_SOFTWARE_PORTS = "27000-27063"
"""Ports of the software switch and of the emulated board, unless their options name others."""


class _Shown(NamedTuple):
    """One ProtoField."""

    name: str  # without the prefix "iswitch."
    kind: str  # uint8, int16, bytes, ...
    values: str | None = None  # an enumeration
    mask: int = 0
    is_flag: bool = False


class _Field(NamedTuple):
    """A field of a record, or several of the same kind one after another."""

    offset: int
    size: int
    repeats: int
    big: bool
    shown: tuple[_Shown, ...]


def _fields(record: np.dtype, prefix: str, type: Type | None = None) -> Iterator[_Field]:
    """Yield the fields of a record.

    Parameters
    ----------
    record : numpy.dtype
        The record.
    prefix : str
        What the names of its fields begin with.
    type : Type or None
        The message, if the record is its header.
    """
    assert record.names and record.fields
    for name in record.names:
        dtype, offset = record.fields[name][:2]
        element, shape = dtype.subdtype or (dtype, ())
        repeats = int(np.prod(shape))
        if shape and element.itemsize == 1:
            yield _Field(offset, repeats, 1, False, (_Shown(prefix + name, "bytes"),))
            continue
        bits = 8 * element.itemsize
        kind = f"{'int' if element.kind == 'i' else 'uint'}{bits}"
        shown = tuple(_parts(prefix, name, kind, type)) if type is not None else ()
        whole = _Shown(prefix + name, kind, prefix + name if prefix + name in ENUMS else None)
        # On a little-endian machine numpy calls "<" native; ">" is ">" on every machine that runs numpy's wheels.
        yield _Field(offset, element.itemsize, repeats, element.byteorder == ">", shown or (whole,))


def _parts(prefix: str, name: str, kind: str, type: Type) -> Iterator[_Shown]:
    """Yield the fields that share the bits of one field of a header; nothing if it is one number."""
    if name == "version_type":
        low = (1 << TYPE_BITS) - 1
        yield _Shown("version", kind, None, 0xFF ^ low)
        yield _Shown("type", kind, "type", low)
    elif name == "format_flags":
        yield _Shown("format", kind, "format", (1 << FLAGS_SHIFT) - 1)
        for flag in FLAGS.get(type, ()):
            yield _Shown(f"flag.{flag.lower()}", kind, None, int(flag_kind(type)[flag]) << FLAGS_SHIFT, True)
    elif name == "collective":
        position, segments = (1 << POSITION_BITS) - 1, 0xFFFFFFFF >> 32 - COLLECTIVE_SEGMENTS_BITS
        segments <<= 32 - COLLECTIVE_SEGMENTS_BITS
        yield _Shown("collective.position", kind, None, position)
        yield _Shown("collective.kind", kind, "collective.kind", 0xFFFFFFFF ^ position ^ segments)
        yield _Shown("collective.segments", kind, None, segments)


def dissector() -> str:
    """Return the dissector, a text in Lua."""
    records: dict[str, str] = {}
    shown: dict[str, _Shown] = {}

    def record(name: str, dtype: np.dtype, prefix: str, type: Type | None = None) -> str:
        """Add a record and return the Lua expression for it. Raises ValueError if a name has two meanings."""
        lines = []
        for field in _fields(dtype, prefix, type):
            for each in field.shown:
                if shown.setdefault(each.name, each) != each:
                    raise ValueError(f"dissector: the field {each.name} is both {shown[each.name]} and {each}")
            names = ", ".join(f'F["{each.name}"]' for each in field.shown)
            lines.append(
                f"    {{ offset = {field.offset}, size = {field.size}, count = {field.repeats}, "
                f"big = {str(field.big).lower()}, shown = {{ {names} }} }},"
            )
        records[name] = "\n".join([f'{{ name = "{name}", size = {dtype.itemsize}, fields = {{', *lines, "  } }"])
        return f'RECORDS["{name}"]'

    def layout(given: Layout) -> str:
        parts = [f'rest = "{given.rest.name}"']
        if given.first is not None:
            parts.append(f"first = {record(given.name, given.first, f'{given.name}.')}")
        if given.row is not None:
            parts.append(f"row = {record(given.row_name, given.row, f'{given.row_name}.')}")
        if given.tail is not None:
            parts.append(f"tail = {record(given.tail_name, given.tail, f'{given.tail_name}.')}")
        return f"{{ {', '.join(parts)} }}"

    messages = {}
    for each, header in HEADERS.items():
        replay = header is REPLAY_HEADER
        parts = [
            f'name = "{each.name}"',
            f"header = {record(f'{each.name.lower()}_header', header, 'replay.' if replay else '', each)}",
            f"replay = {str(replay).lower()}",
        ]
        if each in LAYOUTS:
            parts.append(f"layout = {layout(LAYOUTS[each])}")
        messages[int(each)] = f"{{ {', '.join(parts)} }}"
    requests = {int(kind): layout(given) for kind, given in REQUESTS.items()}
    elements = {
        int(format): f'{{ size = {description.element.itemsize}, shown = F["{name}"] }}'
        for format, description in FORMATS.items()
        for name, kind in [_element(description.element)]
        if shown.setdefault(name, _Shown(name, kind))
    }
    shown["payload"] = _Shown("payload", "bytes")
    return "\n".join(
        [
            f"-- Wireshark dissector of iswitch, written by `iswitch dissector` of {version()}. Do not edit.",
            'local iswitch = Proto("iswitch", "iswitch in-network aggregation and replay")',
            f"local VERSION = {VERSION}",
            *(_table(f"VALUES_{_lua_name(name)}", _members(name)) for name in ENUMS),
            _table("KINDS", {int(kind): f'"{kind.name}"' for kind in Kind}),
            "local F = {}",
            *(f'F["{each.name}"] = {_proto_field(each)}' for each in shown.values()),
            "iswitch.fields = F",
            'local PAYLOAD = F["payload"]',
            "local RECORDS = {}",
            *(f'RECORDS["{name}"] = {text}' for name, text in records.items()),
            _table("MESSAGES", messages),
            _table("REQUESTS", requests),
            _table("ELEMENTS", elements),
            _offsets("JOB_AND_SEQ", HEADER, "job", "seq", "member", "format_flags"),
            _offsets("COUNT_AND_KIND", REPLAY_HEADER, "count", "kind", "session"),
            resources.files("iswitch.capture").joinpath("dissector.lua").read_text(encoding="utf-8"),
            f'DissectorTable.get("udp.port"):add({UDP_PORT}, iswitch)',
            f'DissectorTable.get("udp.port"):add("{_SOFTWARE_PORTS}", iswitch)',
            "",
        ]
    )


def _element(element: np.dtype) -> tuple[str, str]:
    """Return name and kind of the ProtoField of a payload's elements."""
    kind = {"f4": "float", "i4": "int32", "i8": "int64", "u2": "uint16", "f2": "uint16"}[element.str[1:]]
    return f"element.{kind}", kind


def _members(name: str) -> Mapping[int, str]:
    return {int(member): f'"{member.name}"' for member in ENUMS[name]}


def _lua_name(name: str) -> str:
    return name.replace(".", "_").upper()


def _table(name: str, entries: Mapping[int, str]) -> str:
    return "\n".join([f"local {name} = {{", *(f"  [{number}] = {text}," for number, text in entries.items()), "}"])


def _offsets(name: str, record: np.dtype, *fields: str) -> str:
    """Return a table of the offsets of fields that the summary of a packet shows."""
    assert record.fields
    return f"local {name} = {{ {', '.join(f'{field} = {record.fields[field][1]}' for field in fields)} }}"


def _proto_field(shown: _Shown) -> str:
    """Return the Lua expression that makes a ProtoField."""
    name = shown.name.rpartition(".")[2]
    texts = f'"iswitch.{shown.name}", "{name.replace("_", " ")}"'
    if shown.is_flag:
        return f"ProtoField.bool({texts}, {shown.kind.removeprefix('uint')}, nil, {shown.mask:#x})"
    if shown.kind in ("bytes", "float"):
        return f"ProtoField.{shown.kind}({texts})"
    base = "HEX" if name in _HEX else "DEC"
    values = f"VALUES_{_lua_name(shown.values)}" if shown.values else "nil"
    mask = f", {shown.mask:#x}" if shown.mask else ""
    return f"ProtoField.{shown.kind}({texts}, base.{base}, {values}{mask})"
