"""Trains over loopback, with the kernel's help and without."""

import errno
import socket

import numpy as np
import pytest
from iswitch import SwitchUnreachable
from iswitch.transport import RECEIVE_BYTES, UdpTransport, parse_address
from iswitch.wire import UDP_PORT


@pytest.fixture
def peer():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        made.bind(("127.0.0.1", 0))
        made.settimeout(5)
        yield made


@pytest.fixture(params=[False, True], ids=["trains", "plain"])
def transport(request, peer):
    made = UdpTransport(f"127.0.0.1:{peer.getsockname()[1]}", plain=request.param)
    yield made
    made.close()


def test_address_without_port_gets_the_switch_s():
    assert parse_address("switch") == ("switch", UDP_PORT)
    assert parse_address("10.0.0.1:7") == ("10.0.0.1", 7)


@pytest.mark.parametrize("address", ["", ":1", "host:", "host:x", "host:0", "host:65536", "host:-1"])
def test_address_wrong(address):
    with pytest.raises(ValueError, match="host:port"):
        parse_address(address)


def test_unknown_host_is_told():
    with pytest.raises(SwitchUnreachable, match="no host"):
        UdpTransport("no-such-host.invalid:1")


@pytest.mark.parametrize("size", [1, 100, 1430, 1431, 45 * 1430, 44 * 1430 + 5])
def test_train_arrives_as_datagrams(transport, peer, size):
    train = np.random.default_rng(size).bytes(size)
    transport.send(memoryview(train), 1430)
    received = [peer.recv(RECEIVE_BYTES) for _ in range(-(-size // 1430))]
    assert b"".join(received) == train
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
        received += [bytes(buffer[at:min(at + segment_bytes, size)]) for at in range(0, size, segment_bytes)]
    assert received == parts
    assert transport.receive(buffer, 0.01) == (0, 0)


def test_kernel_train_is_received_whole(peer):
    transport = UdpTransport(f"127.0.0.1:{peer.getsockname()[1]}")
    if not (transport.gso and transport.gro):
        pytest.skip("this kernel has no UDP trains")
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


def test_device_without_trains_gets_datagrams(peer):
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


def test_segment_above_the_mtu_is_told(peer):
    transport = UdpTransport(f"127.0.0.1:{peer.getsockname()[1]}", plain=True)
    with pytest.raises(ValueError, match="fewer `elements`"):
        transport.send(bytes(65508), 65508)
    transport.close()


def test_shut_port_is_noted(transport, peer):
    peer.close()
    transport.send(b"1", 1)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    assert transport.receive(buffer, 1) == (0, 0)
    assert transport.refused
