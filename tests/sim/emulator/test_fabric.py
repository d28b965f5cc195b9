"""What may be joined with what, and a fabric in wall time: frames cross it, overload is counted."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iswitch.config import Config
from sim.emulator.endpoint import FrameEnd
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Faults, Rates
from sim.emulator.hub import SMALL
from sim.emulator.link import Link
from sim.emulator.port import PENDING_FRAMES
from sim.emulator.wall import WallTime
from sim.emulator.wire import Wire
from sim.frames.client import ordinary

FRAMES = [ordinary(b"\x02RIGHT", b"\x02LEFT!", 60 + number) for number in range(100)]


@contextmanager
def serving(fabric: Fabric) -> Iterator[WallTime]:
    with WallTime(fabric) as time_of:
        thread = threading.Thread(target=time_of.serve)
        thread.start()
        try:
            yield time_of
        finally:
            time_of.stop()
            thread.join()


def received(end: FrameEnd, count: int, seconds: float = 10) -> list[bytes]:
    came = threading.Event()
    end.arrived = came.set
    frames, deadline = end.receive(), time.monotonic() + seconds
    while len(frames) < count and came.wait(deadline - time.monotonic()):
        came.clear()
        frames += end.receive()
    return frames


@pytest.mark.parametrize("delay_us", [0, 20_000])
def test_frames_cross_three_switches_in_wall_time(relay: Path, delay_us: int) -> None:
    with Board(path=relay) as one, Board(path=relay) as two, Board(path=relay) as three:
        ends = [FrameEnd(), FrameEnd()]
        fabric = Fabric(
            [one, two, three], [Link((0, 1), (1, 0), 10**9, Rates(delay_us=delay_us)), Link((2, 0), (1, 1))]
        )
        fabric.plug((0, 0), ends[0])
        fabric.plug((2, 1), ends[1], outbound=Wire(Faults(Rates(duplicate=1))))
        with serving(fabric):
            begun = time.monotonic()
            for frame in FRAMES:
                ends[0].send(frame)
            assert received(ends[1], 2 * len(FRAMES)) == [frame for frame in FRAMES for _ in range(2)]
            assert time.monotonic() - begun >= delay_us / 1e6
            ends[1].send(FRAMES[7])
            assert received(ends[0], 1) == [FRAMES[7]]
    assert fabric.nodes[1].ports[1].counts == {"frames into the switch": 1, "frames out of the switch": 100}


def test_damaged_frames_reach_no_attachment(relay: Path) -> None:
    with Board(path=relay) as board:
        ends = [FrameEnd(), FrameEnd()]
        fabric = Fabric([board])
        fabric.plug((0, 0), ends[0])
        fabric.plug((0, 1), ends[1], outbound=Wire(Faults(Rates(corrupt=0.5))))
        with serving(fabric):
            for frame in FRAMES:
                ends[0].send(frame)
            good = received(ends[1], len(FRAMES), 1)
        bad = fabric.nodes[0].ports[1].counts["out, bad FCS"]
        assert 20 < bad < 80 and len(good) == len(FRAMES) - bad and set(good) <= set(FRAMES)


def test_what_a_link_brings_to_a_full_port_is_dropped_and_counted(relay: Path) -> None:
    with (
        Board(path=relay) as one,
        Board(path=relay) as two,
        WallTime(Fabric([one, two], [Link((0, 1), (1, 0))])) as time_of,
    ):
        two.limit(1)
        port = time_of.fabric.nodes[1].ports[0]
        assert port.inbound is not None
        for number in range(PENDING_FRAMES + 10):
            port.inbound.put(number.to_bytes(60), 0)
        assert port.enter(0)
        assert port.counts == {"frames into the switch": 1, "in, dropped at a full port": 9}


def test_an_attachment_keeps_what_a_port_has_no_room_for(relay: Path) -> None:
    with Board(path=relay) as board, WallTime(Fabric([board])) as time_of:
        board.limit(1)
        end = FrameEnd()
        time_of.fabric.plug((0, 0), end)
        for number in range(3 * PENDING_FRAMES):
            end.send(number.to_bytes(60))
        while time_of.turn():
            pass
        assert time_of.fabric.nodes[0].ports[0].counts == {"frames into the switch": 3 * PENDING_FRAMES}
        assert time_of.fabric.nodes[0].ports[1].counts["frames out of the switch"] == 3 * PENDING_FRAMES


def test_fabric_wrong(relay: Path, hubs: Callable[[Config, str], Path]) -> None:
    with pytest.raises(ValueError, match="Fabric boards must be at least one, not none"):
        Fabric([])
    with Board(path=relay) as one, Board(path=hubs(SMALL, "verilator")) as two:
        for links, message in [
            ([Link((0, 1), (2, 0))], "a place must be a switch of 0 to 1 and one of its ports, not 2:0"),
            ([Link((0, 2), (1, 0))], "not 0:2"),
            ([Link((0, 1), (1, 0)), Link((1, 0), (0, 0))], "a port takes one cable, and 1:0 has one already"),
        ]:
            with pytest.raises(ValueError, match=message):
                Fabric([one, two], links)
        with (
            Fabric([one, two], [Link((0, 1), (1, 0))]) as fabric,
            pytest.raises(ValueError, match="1:0 has one already"),
        ):
            fabric.plug((1, 0), FrameEnd())
