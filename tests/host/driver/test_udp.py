"""Bursts over loopback, with the kernel's help and without."""

import errno
import os
import socket

import numpy as np
import pytest

from iswitch import SwitchUnreachableError
from iswitch.driver.transport import RECEIVE_BYTES
from iswitch.driver.udp import UdpTransport


@pytest.fixture
def peer():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        made.bind(("127.0.0.1", 0))
        made.settimeout(5)
        yield made


@pytest.fixture(params=[False, True], ids=["bursts", "datagrams"])
def transport(request, peer):
    made = UdpTransport(f"127.0.0.1:{peer.getsockname()[1]}", no_offload=request.param)
    yield made
    made.close()


class Failing:
    """A socket of which one call fails."""

    def __init__(self, real, call, number):
        self._real, self._call, self._number = real, call, number

    def __getattr__(self, name):
        if name == self._call:
            return self._fail
        return getattr(self._real, name)

    def _fail(self, *_):
        raise OSError(self._number, os.strerror(self._number))


def test_a_host_without_a_route_is_unreachable(monkeypatch):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as real:
        monkeypatch.setattr("socket.socket", lambda *_: Failing(real, "connect", errno.ENETUNREACH))
        with pytest.raises(SwitchUnreachableError, match=r"no route.*`ip route get 198\.51\.100\.7`"):
            UdpTransport("198.51.100.7:1")


@pytest.mark.parametrize(
    "number",
    [
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.EPERM,
        errno.ENETDOWN,
        errno.ENOBUFS,
        errno.EINVAL,
        errno.EACCES,
        errno.EHOSTDOWN,
        errno.ENOMEM,
    ],
)
def test_a_datagram_that_cannot_be_sent_now_is_lost_and_the_cause_recorded(transport, number):
    real, transport._socket = transport._socket, Failing(transport._socket, "send", number)
    transport.send(b"1", 1)
    assert transport.fault and "; " in transport.fault
    transport._socket = real
    transport.send(b"1", 1)
    assert not transport.fault


def test_a_closed_transport_sends_nothing(transport):
    transport.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        transport.send(b"1", 1)


def test_a_burst_that_no_datagram_of_it_could_replace_leaves_gso_on(peer):
    """A blackhole route refuses bursts and datagrams with the same error that a device without GSO gives."""
    transport = UdpTransport(f"127.0.0.1:{peer.getsockname()[1]}")
    real, transport.gso = transport._socket, True
    transport._socket = Failing(Failing(real, "sendmsg", errno.EINVAL), "send", errno.EINVAL)
    transport.send(bytes(30), 10)
    assert transport.gso and transport.fault.startswith("Invalid argument; ")
    transport._socket = real
    transport.close()


FORGED = [errno.EMSGSIZE, errno.ENOPROTOOPT, errno.EPROTO, errno.EHOSTDOWN]
"""Errors by which the kernel reports ICMP messages. Any host can forge the message."""


@pytest.mark.parametrize("number", FORGED)
def test_an_icmp_message_while_receiving_stops_nothing(transport, peer, number):
    transport.send(b"1", 1)
    peer.sendto(b"2", peer.recvfrom(10)[1])
    real, buffer = transport._socket, memoryview(bytearray(RECEIVE_BYTES))
    transport._socket = Failing(real, "recvmsg_into" if transport.gro else "recv_into", number)
    assert transport.receive(buffer, 5) == (0, 0)
    transport._socket = real
    assert transport.receive(buffer, 5) == (1, 1)


@pytest.mark.parametrize("number", FORGED)
def test_an_icmp_message_while_sending_loses_no_datagram_and_turns_no_bursts_off(transport, peer, number):
    """The kernel reports a message once, whatever the present call sends."""

    class Reporting(Failing):
        def _fail(self, *arguments):
            fails, self._number = self._number, 0
            if fails:
                raise OSError(fails, os.strerror(fails))
            return getattr(self._real, self._call)(*arguments)

    real, gso = transport._socket, transport.gso
    transport._socket = Reporting(real, "sendmsg" if gso else "send", number)
    transport.send(bytes(30), 10)
    assert [len(peer.recv(100)) for _ in range(3)] == [10] * 3
    assert transport.gso == gso and not transport.fault
    transport._socket = real


def test_the_kernel_obeys_no_message_about_the_paths_mtu(transport):
    """IP_PMTUDISC_PROBE of Linux: do not fragment, and take the interface's MTU alone."""
    assert transport._socket.getsockopt(socket.IPPROTO_IP, 10) == 3


@pytest.mark.parametrize("size", [1, 100, 1430, 1431, 45 * 1430, 44 * 1430 + 5])
def test_burst_arrives_as_datagrams(transport, peer, size):
    burst = np.random.default_rng(size).bytes(size)
    transport.send(memoryview(burst), 1430)
    received = [peer.recv(RECEIVE_BYTES) for _ in range(-(-size // 1430))]
    assert b"".join(received) == burst
    assert {len(part) for part in received[:-1]} <= {1430}


def test_datagrams_arrive_in_order_whatever_their_sizes(transport, peer):
    sizes = [1434] * 10 + [200] + [1434] * 3 + [22, 86, 86, 1434, 1, 2, 3, 9000, 1434] + [86] * 70 + [1434] * 60
    parts = [bytes([k % 251]) * size for k, size in enumerate(sizes)]
    transport.send(b"hello", 5)
    _, client = peer.recvfrom(100)
    received, buffer = [], memoryview(bytearray(RECEIVE_BYTES))
    for part in parts:
        peer.sendto(part, client)
    while len(received) < len(parts):
        size, segment_bytes = transport.receive(buffer, 5)
        assert size
        received += [bytes(buffer[at : min(at + segment_bytes, size)]) for at in range(0, size, segment_bytes)]
    assert received == parts
    assert transport.receive(buffer, 0.01) == (0, 0)


def test_a_burst_of_the_kernel_is_received_at_once(peer):
    transport = UdpTransport(f"127.0.0.1:{peer.getsockname()[1]}")
    if not (transport.gso and transport.gro):
        pytest.skip("this kernel has no UDP bursts")
    transport.send(b"hello", 5)
    _, client = peer.recvfrom(100)
    sender = UdpTransport(f"127.0.0.1:{client[1]}")
    sender._socket.close()
    with socket.socket(fileno=socket.dup(peer.fileno())) as again:
        again.connect(client)
        sender._socket = again
        sender.send(bytes(10 * 1434 + 100), 1434)
    assert transport.receive(memoryview(bytearray(RECEIVE_BYTES)), 5) == (10 * 1434 + 100, 1434)
    transport.close()


def test_device_without_bursts_gets_datagrams(peer):
    transport = UdpTransport(f"127.0.0.1:{peer.getsockname()[1]}")
    real = transport._socket

    class Old:
        def __getattr__(self, name):
            return getattr(real, name)

        def sendmsg(self, *_):
            raise OSError(errno.EIO, "no checksum offload")

    transport.gso, transport._socket = True, Old()
    transport.send(bytes(30), 10)
    assert [len(peer.recv(100)) for _ in range(3)] == [10] * 3
    assert not transport.gso
    transport.close()


def test_a_segment_above_the_mtu_raises(peer):
    transport = UdpTransport(f"127.0.0.1:{peer.getsockname()[1]}", no_offload=True)
    with pytest.raises(ValueError, match="fewer `elements`"):
        transport.send(bytes(65508), 65508)
    transport.close()


def test_a_closed_port_is_recorded(transport, peer):
    peer.close()
    transport.send(b"1", 1)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    assert transport.receive(buffer, 1) == (0, 0)
    assert transport.refused
