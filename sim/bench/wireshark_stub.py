"""Wireshark's Lua interface, as far as our dissector calls it, and stricter: Lua runs in this process by lupa.

Names and arguments are those of the Lua reference of Wireshark's developer's guide. What Wireshark would forgive is an
error here: a range past the captured bytes, a field that does not belong to the protocol, a range that is longer than
its field. The stub shows what a dissector adds to the tree. It is not Wireshark.
"""

import struct
from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["LUA_VERSIONS", "Added", "Dissection", "Wireshark"]

LUA_VERSIONS = ("lua51", "lua52", "lua53", "lua54")
"""Versions of Lua that lupa brings, and Wireshark has had."""
_DISSECTIONS_BETWEEN_COLLECTIONS = 64
_SIZES = {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "int16": 2, "int32": 4, "int64": 8, "float": 4, "bool": 1}


class Added(NamedTuple):
    """A field that the dissector has added. `text`: the name of the value, if the field has names of values."""

    name: str
    value: Any
    offset: int
    text: str | None


class Dissection(NamedTuple):
    """What the dissector made of one datagram. `consumed`: what it returned."""

    consumed: int
    protocol: str | None
    info: str | None
    fields: list[Added]


class ProtoField:
    def __init__(self, kind: str, name: str, values: Any, mask: int):
        self.kind, self.name, self.mask = kind, name, mask
        self.values = None if values is None else dict(values.items())

    def decode(self, octets: bytes, *, little: bool) -> Added:
        if self.kind == "bytes":
            return Added(self.name, octets, 0, None)
        if len(octets) != _SIZES[self.kind]:
            raise ValueError(f"{self.name}: a range of {len(octets)} bytes")
        if self.kind == "float":
            return Added(self.name, struct.unpack("<f" if little else ">f", octets)[0], 0, None)
        value: int = int.from_bytes(octets, "little" if little else "big", signed=self.kind.startswith("int"))
        if self.mask:
            value = (value & self.mask) // (self.mask & -self.mask)
        text = None if self.values is None else self.values.get(value)
        return Added(self.name, bool(value) if self.kind == "bool" else value, 0, text)


class ProtoFields:
    """`ProtoField.uint8(...)` and the others."""

    def __getattr__(self, kind: str) -> Any:
        if kind not in _SIZES and kind != "bytes":
            raise AttributeError(f"ProtoField.{kind}")

        def make(name: str, label: str, base: Any = None, values: Any = None, mask: int | None = None) -> ProtoField:
            if mask is not None and mask >> 8 * _SIZES[kind]:
                raise ValueError(f"{name}: the mask {mask:#x} is wider than the field")
            return ProtoField(kind, name, values, mask or 0)

        return make


class Proto:
    def __init__(self, name: str, description: str):
        self.name, self.description = name, description
        self.fields: Any = None
        self.dissector: Any = None


class Range:
    def __init__(self, octets: bytes, offset: int):
        self.octets, self.offset = octets, offset

    def uint(self) -> int:
        return int.from_bytes(self.octets, "big")

    def le_uint(self) -> int:
        return int.from_bytes(self.octets, "little")


class Tvb:
    """A buffer of which perhaps only the first bytes were captured."""

    def __init__(self, captured: bytes, reported: int):
        self._captured, self._reported = captured, reported

    def captured_len(self) -> int:
        return len(self._captured)

    def reported_len(self) -> int:
        return self._reported

    def __call__(self, offset: int, length: int) -> Range:
        offset, length = as_int(offset), as_int(length)
        if offset < 0 or length <= 0 or offset + length > len(self._captured):
            raise IndexError(f"the range {offset}, {length} is not within {len(self._captured)} bytes")
        return Range(self._captured[offset : offset + length], offset)


class TreeItem:
    def __init__(self, proto: Proto, added: list[Added]):
        self._proto, self._added = proto, added
        self._own = {id(field) for field in proto.fields.values()}

    def _add(self, what: Any, range: Range, *, little: bool) -> "TreeItem":
        if isinstance(what, ProtoField):
            if id(what) not in self._own:
                raise ValueError(f"{what.name} is not in the protocol's fields")
            self._added.append(what.decode(range.octets, little=little)._replace(offset=range.offset))
        elif what is not self._proto:
            raise TypeError(f"a tree takes no {what!r}")
        return self

    def add(self, what: Any, range: Range, text: str | None = None) -> "TreeItem":
        return self._add(what, range, little=False)

    def add_le(self, what: Any, range: Range) -> "TreeItem":
        return self._add(what, range, little=True)


class Columns:
    protocol: str | None = None
    info: str | None = None


class PacketInfo:
    def __init__(self) -> None:
        self.cols = Columns()


class DissectorTable:
    def __init__(self) -> None:
        self.entries: dict[int | str, Proto] = {}

    def add(self, pattern: int | str, proto: Proto) -> None:
        self.entries[pattern] = proto


class Wireshark:
    """Loads a dissector for UDP.

    Parameters
    ----------
    text : str
        The dissector.
    lua : str
        One of `LUA_VERSIONS`.
    """

    def __init__(self, text: str, lua: str = "lua54"):
        runtime = import_module(f"lupa.{lua}").LuaRuntime(unpack_returned_tuples=True, register_eval=False)
        self.udp_ports = DissectorTable()
        made: list[Proto] = []

        def proto(name: str, description: str) -> Proto:
            made.append(Proto(name, description))
            return made[-1]

        def table(name: str) -> DissectorTable:
            if name != "udp.port":
                raise ValueError(f"there is no dissector table {name}")
            return self.udp_ports

        given = runtime.globals()
        given.Proto, given.ProtoField = proto, ProtoFields()
        given.base = runtime.table_from({"DEC": "DEC", "HEX": "HEX"})
        given.DissectorTable = runtime.table_from({"get": table})
        runtime.execute(text)
        (self.proto,) = made
        # lupa knows Python's objects by their addresses. If Lua collects garbage step by step, it may find an object of
        # before at the address of a new one (AttributeError, at random). So it collects only between dissections.
        self._collect, self._dissections = given.collectgarbage, 0
        self._collect("stop")

    def dissect(self, captured: bytes, reported: int | None = None) -> Dissection:
        """Dissect a UDP payload, of which `reported` bytes were on the wire and the first ones captured."""
        if self._dissections % _DISSECTIONS_BETWEEN_COLLECTIONS == 0:
            self._collect("collect")
            self._collect("stop")  # a collection starts the collector of some versions of Lua again
        self._dissections += 1
        added: list[Added] = []
        pinfo = PacketInfo()
        tvb = Tvb(captured, len(captured) if reported is None else reported)
        consumed = self.proto.dissector(tvb, pinfo, TreeItem(self.proto, added))
        return Dissection(as_int(consumed), pinfo.cols.protocol, pinfo.cols.info, added)


def as_int(number: float) -> int:
    """Return a number of Lua as an integer; Lua 5.1 has floating point only."""
    if number != int(number):
        raise ValueError(f"{number} is no integer")
    return int(number)
