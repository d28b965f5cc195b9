"""Captures, read back by somebody else."""

from pathlib import Path

from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from sim.emulator.pcap import Capture
from sim.frames.client import ordinary


def test_captures_are_read_by_scapy(tmp_path: Path) -> None:
    frames = [ordinary(bytes(6), b"\x02PCAP!", size) for size in (60, 100, 1400)]
    with Capture(tmp_path / "x.pcap", epoch_ns=1_700_000_000_000_000_000) as capture:
        for number, frame in enumerate(frames):
            capture.write(frame, 123_456_789 + number)
    read = rdpcap(str(tmp_path / "x.pcap"))
    assert [bytes(packet[Ether]) for packet in read] == frames
    assert [int(packet.time * 1_000_000_000) for packet in read] == [1_700_000_000_123_456_789 + k for k in range(3)]
