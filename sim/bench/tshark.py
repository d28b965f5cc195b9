"""Runs Wireshark's command line program with a dissector of ours, and reads what it shows."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

__all__ = ["ShownField", "ShownPacket", "dissect", "tshark_program"]

_REPORTS = ("_ws.malformed", "_ws.expert", "_ws.lua.error", "_ws.lua.text")
"""Fields by which Wireshark reports a damaged packet, a suspicion, or an error of a Lua dissector."""


class ShownField(NamedTuple):
    """A field of a packet's tree.

    Attributes
    ----------
    name : str
        Name of the ProtoField, or of the protocol.
    show : str
        The value as Wireshark shows it in a filter, such as "3", "0x00e4", "True" or "aa:bb".
    label : str
        The row of the tree, such as "type: NOTICE (4)".
    octets : str
        The bytes of the packet, in hexadecimal; those of a field with a mask are masked.
    offset : int
        Place in the UDP payload, in bytes.
    """

    name: str
    show: str
    label: str
    octets: str
    offset: int


class ShownPacket(NamedTuple):
    """What Wireshark shows of a packet.

    Attributes
    ----------
    fields : list of ShownField
        The fields whose names begin with the dissector's.
    reports : list of str
        What Wireshark says is wrong with the packet.
    """

    fields: list[ShownField]
    reports: list[str]


def tshark_program() -> str:
    """Return the path of tshark.

    Raises
    ------
    FileNotFoundError
        If the machine has none.
    """
    program = shutil.which("tshark")
    if program is None:
        raise FileNotFoundError("there is no tshark on PATH: apt-get install --no-install-recommends tshark")
    return program


def dissect(capture: Path, lua: Path, name: str, *, options: Sequence[str] = ()) -> list[ShownPacket]:
    """Return what tshark shows of a capture with a dissector.

    Parameters
    ----------
    capture : Path
        A capture of UDP over IPv4 without options, on Ethernet.
    lua : Path
        The dissector.
    name : str
        Name of its protocol, with which the names of its fields begin.
    options : sequence of str, default ()
        Further options of tshark.

    Raises
    ------
    FileNotFoundError
        If the machine has no tshark.
    RuntimeError
        If tshark refuses the capture or the dissector.
    """
    own = capture.parent / "wireshark"  # in place of the user's settings and plugins
    own.mkdir(exist_ok=True)
    done = subprocess.run(
        [tshark_program(), "-n", "-r", capture, "-X", f"lua_script:{lua}", "-T", "pdml", *options],
        capture_output=True,
        env=os.environ | {"WIRESHARK_CONFIG_DIR": str(own), "HOME": str(own), "LC_ALL": "C.UTF-8"},
    )
    said = [line for line in done.stderr.decode().splitlines() if line and not line.startswith("Running as user")]
    if done.returncode or said:
        raise RuntimeError(f"tshark failed with {done.returncode}: " + "; ".join(said))
    return [_packet(each, name) for each in ElementTree.fromstring(done.stdout).iter("packet")]


def _packet(packet: ElementTree.Element, name: str) -> ShownPacket:
    """Return the dissector's fields, and Wireshark's reports, of a packet in Wireshark's XML."""
    starts = [int(proto.get("pos", "")) + 8 for proto in packet.iter("proto") if proto.get("name") == "udp"]
    start = starts[0] if starts else 0
    fields = [
        ShownField(
            each.get("name", ""),
            each.get("show", ""),
            each.get("showname", ""),
            each.get("value", ""),
            int(each.get("pos", "0")) - start,
        )
        for each in packet.iter("field")
        if each.get("name", "").startswith(f"{name}.")
    ]
    reports = [
        each.get("showname", "") or each.get("show", "")
        for each in packet.iter()
        if each.get("name", "").startswith(_REPORTS)
    ]
    return ShownPacket(fields, reports)
