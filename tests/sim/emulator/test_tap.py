"""TAP devices against packet sockets of the same kernel; skipped where the kernel or the rights forbid them."""

import os
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.tap import Tap
from sim.emulator.wall import IDLE_SECONDS, WallTime

NAME = f"iswt{os.getpid()}"
ETHER_TYPE = 0x88B5


@pytest.fixture
def tap() -> Iterator[Tap]:
    if not shutil.which("ip"):
        pytest.skip("there is no `ip` (Debian: iproute2)")
    try:
        made = Tap(NAME)
    except OSError as error:
        pytest.skip(str(error))
    subprocess.run(["ip", "link", "set", "dev", NAME, "up"], check=True)
    yield made
    made.close()


def ours(frames: list[bytes]) -> list[bytes]:
    """Without what the kernel says of itself."""
    return [frame for frame in frames if frame[12:14] == ETHER_TYPE.to_bytes(2)]


@pytest.mark.parametrize("size", [14, 59, 60, 61, 1514])
def test_frames_go_both_ways_unchanged_and_padded_to_the_minimum_inwards(tap: Tap, size: int) -> None:
    frame = b"\xff" * 6 + b"\x02KERN\x01" + ETHER_TYPE.to_bytes(2) + bytes(number & 0xFF for number in range(size - 14))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE)) as raw:
        raw.bind((NAME, ETHER_TYPE))
        raw.settimeout(5)
        raw.send(frame)
        assert select.select([tap], [], [], 5)[0]
        taken: list[bytes] = []
        deadline = time.monotonic() + 5
        while not taken and time.monotonic() < deadline:
            taken = ours(tap.receive_frames(100))
        assert taken == [frame.ljust(60, b"\0")] and ours(tap.receive_frames(100)) == []
        tap.deliver_frames([frame])
        assert raw.recv(2000) == frame
    assert tap.counts["frames to the kernel"] == 1 and tap.counts["frames from the kernel"] >= 1


def test_no_more_frames_are_taken_than_asked_for(tap: Tap) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((NAME, 0))
        for _ in range(5):
            raw.send(bytes(60))
    assert [len(tap.receive_frames(2)), len(tap.receive_frames(2))] == [2, 2]


def test_a_device_that_is_down_loses_frames_and_counts_them(tap: Tap) -> None:
    subprocess.run(["ip", "link", "set", "dev", NAME, "down"], check=True)
    tap.receive_frames(100)  # what the kernel had said on its own while the device was up
    assert tap.receive_frames(10) == []
    tap.deliver_frames([bytes(60)] * 3)
    assert tap.counts["out, refused by the kernel"] == 3


def test_a_device_that_was_deleted_wakes_nobody(tap: Tap, relay: Path) -> None:
    with Board(path=relay) as board, Fabric([board]) as fabric:
        fabric.plug((0, 0), tap)
        with WallTime(fabric) as time_of:
            while time_of.turn():
                pass
            subprocess.run(["ip", "link", "del", "dev", NAME], check=True)
            time_of.sleep()
            begun = time.monotonic()
            assert not time_of.turn()
            time_of.sleep()
            assert time.monotonic() - begun > IDLE_SECONDS / 2
            tap.deliver_frames([bytes(60)])
    assert tap.counts["out, refused by the kernel"] == 1


def test_the_kernel_chooses_a_name(tap: Tap) -> None:
    other = Tap()
    assert other.name and other.name != NAME and other.address == other.name
    other.close()
    other.close()


def test_errors_name_the_remedy(tap: Tap, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match=f"cannot open TAP {NAME}: another process has it: choose another name"):
        Tap(NAME)
    with pytest.raises(OSError, match="cannot open TAP lo: a device of this name exists and is no TAP"):
        Tap("lo")
    monkeypatch.setattr("sim.emulator.tap.DEVICE", "/dev/net/none")
    with pytest.raises(OSError, match="modprobe tun"):
        Tap("x")


@pytest.mark.parametrize("name", ["", "a" * 16, "a/b", "a b", "..", "tap%d"])
def test_names_wrong(name: str) -> None:
    with pytest.raises(ValueError, match="a TAP's name must be 1 to 15 bytes"):
        Tap(name)
