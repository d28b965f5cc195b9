"""Hosts in this process: payloads in virtual time, and the real driver over the real switch in wall time."""

import select
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from iswitch import Worker
from iswitch.config import Config
from iswitch.driver.transport import RECEIVE_BYTES
from sim.emulator.card import Client
from sim.emulator.endpoint import FrameEnd, Host, Hosts, HostTransport
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.hub import ECHO
from sim.emulator.link import Link
from sim.emulator.virtual import VirtualTime
from sim.emulator.wall import WallTime
from sim.emulator.wire import Wire
from sim.frames.client import SWITCH_IP, SWITCH_MAC


def client(number: int) -> Client:
    return Client(bytes([10, 1, 0, number]), 5000 + number)


def test_payloads_come_back_to_the_host_that_sent_them(hubs: Callable[[Config, str], Path]) -> None:
    with Board(path=hubs(ECHO, "verilator")) as board, Fabric([board]) as fabric:
        cable = lambda: Wire(rate_bps=10**9)
        shared, lone = Hosts(SWITCH_MAC, SWITCH_IP), Hosts(SWITCH_MAC, SWITCH_IP)
        fabric.plug((0, 0), shared, inbound=cable(), outbound=cable())
        fabric.plug((0, 1), lone, inbound=cable(), outbound=cable())
        hosts = [shared.host(client(1)), shared.host(client(2)), lone.host(client(3))]
        virtual, answered = VirtualTime(fabric), []

        def again() -> None:
            """Sends once more what came, until it has grown to four bytes."""
            for payload in hosts[0].receive():
                answered.append((virtual.now_ps, payload))
                if len(payload) < 4:
                    hosts[0].send(payload + b"+")

        hosts[0].arrived = again
        for number, host in enumerate(hosts):
            host.send(bytes([number]))
        virtual.run()
        assert [payload for _, payload in answered] == [b"\0", b"\0+", b"\0++", b"\0+++"]
        # There and back each time, over a wire that takes 576 ns for the least of frames.
        assert all(later - sooner > 2 * 576_000 for (sooner, _), (later, _) in pairwise(answered))
        assert [host.receive() for host in hosts] == [[], [b"\1"], [b"\2"]]
        # The hub sends out of both ports; a card takes what is its own.
        assert (
            shared.counts["out, not for a client of this port"] == 1
            and lone.counts["out, not for a client of this port"] == 5
        )


def test_an_end_polls_as_readable_while_it_has_frames_for_the_switch() -> None:
    end = FrameEnd()
    ready = lambda: bool(select.select([end], [], [], 0)[0])
    assert not ready() and end.receive_frames(10) == []
    for number in range(3):
        end.send(bytes([number]))
    assert ready() and end.receive_frames(2) == [b"\0", b"\1"]
    assert ready() and end.receive_frames(2) == [b"\2"] and not ready()
    end.close()
    end.close()


def test_a_host_has_an_address_of_its_own() -> None:
    hosts = Hosts(SWITCH_MAC, SWITCH_IP)
    hosts.host(client(1))
    with pytest.raises(ValueError, match=r"a host's address must be its own, and \('10.1.0.1', 5001\) is taken"):
        hosts.host(client(1))
    hosts.close()


@pytest.mark.parametrize(
    "payloads, bursts",
    [
        ([b"a" * 100] * 3, [(300, 100)]),
        ([b"a" * 100, b"b" * 50, b"c" * 100], [(150, 100), (100, 100)]),
        ([b"a", b"bb"], [(1, 1), (2, 2)]),
        ([b"a" * 9000] * 8, [(63000, 9000), (9000, 9000)]),
        ([], []),
    ],
)
def test_a_transport_lays_payloads_out_as_bursts(payloads: list[bytes], bursts: list[tuple[int, int]]) -> None:
    host = Host(lambda payload: None)
    transport = HostTransport(host)
    ready = lambda: bool(select.select([transport], [], [], 0)[0])
    buffer, whole, found = memoryview(bytearray(RECEIVE_BYTES)), b"", []
    host.inbox.extend(payloads)
    if payloads and host.arrived:
        host.arrived()
    while ready():
        size, segment_bytes = transport.receive(buffer, 1)
        whole += bytes(buffer[:size])
        found.append((size, segment_bytes))
    assert found == bursts and whole == b"".join(payloads)
    assert transport.receive(buffer, 0) == (0, 0)
    transport.close()


def test_a_transport_takes_bursts_apart() -> None:
    sent: list[bytes] = []
    transport = HostTransport(Host(sent.append))
    transport.send(np.arange(25, dtype=np.uint8).data, 10)
    assert sent == [bytes(range(10)), bytes(range(10, 20)), bytes(range(20, 25))]
    assert [transport.burst_segments(size) for size in (1, 1024, 1430, 70_000)] == [64, 64, 45, 1]
    transport.close()


def test_workers_sum_over_a_fabric_in_this_process() -> None:
    """Two switches with addresses of their own and a job on each, while ordinary frames cross the link between them."""
    addresses = [(b"\x02SWIT" + bytes([number]), bytes([10, 0, 0, 1 + number])) for number in range(2)]
    boards = [Board(Config(), mac=mac, ip=ip, seed=1 + number) for number, (mac, ip) in enumerate(addresses)]
    fabric = Fabric(boards, [Link((0, 3), (1, 0), 10**9)])
    transports: list[list[HostTransport]] = []
    for switch, (mac, ip) in enumerate(addresses):
        transports.append([])
        for rank in range(2):
            fabric.plug((switch, 1 + rank), hosts := Hosts(mac, ip))
            transports[-1].append(HostTransport(hosts.host(client(10 * switch + rank))))
    fabric.plug((0, 0), left := FrameEnd())
    fabric.plug((1, 3), right := FrameEnd())
    sums: dict[tuple[int, int], np.ndarray] = {}

    def work(switch: int, rank: int) -> None:
        with Worker(rank=rank, world=2, transport=transports[switch][rank], timeout_s=30) as worker:
            for _ in range(3):
                sums[switch, rank] = array = np.full(1000, 10 * switch + rank, np.float32)
                worker.allreduce(array)

    with WallTime(fabric) as time_of:
        threads = [threading.Thread(target=work, args=(switch, rank)) for switch in range(2) for rank in range(2)]
        serving = threading.Thread(target=time_of.serve)
        for thread in [serving, *threads]:
            thread.start()
        left.send(b"\xff" * 6 + b"\x02LEFT!" + bytes(48))
        for thread in threads:
            thread.join()
        time_of.stop()
        serving.join()
    assert {place: set(array.tolist()) for place, array in sums.items()} == {
        (0, 0): {1},
        (0, 1): {1},
        (1, 0): {21},
        (1, 1): {21},
    }
    assert right.receive() == [b"\xff" * 6 + b"\x02LEFT!" + bytes(48)]
