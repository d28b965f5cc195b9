"""The `Config` of a software switch: elements fill a packet on its interface, and the window fits its sockets."""

import ipaddress
import socket

import pytest

from iswitch.config import Config
from iswitch.switch import sizing
from iswitch.switch.sizing import config_for, elements_for, mtu_at
from iswitch.switch.sockets import open_ports
from iswitch.wire import HEADER, TAIL_BYTES

IP_UDP_BYTES, WORD_BYTES, MOST = 28, 64, 2208


@pytest.mark.parametrize("mtu", [576, 1280, 1400, 1461, 1462, 1499, 1500, 1525, 1526, 8885, 8886, 9000, 65536])
def test_a_result_fills_a_packet_but_for_less_than_a_word(monkeypatch, mtu):
    monkeypatch.setattr(sizing, "mtu_at", lambda host: mtu)
    elements = elements_for("10.0.0.1")
    packet = IP_UDP_BYTES + HEADER.itemsize + 4 * elements + TAIL_BYTES
    assert packet <= mtu and (mtu - packet < WORD_BYTES or elements == MOST)
    Config(elements=elements, queue_bytes=32768)


def test_the_mtu_is_the_least_of_the_interfaces_at_which_the_switch_listens(monkeypatch):
    known = [("127.0.0.1", 65536), ("10.0.0.1", 9000), ("192.0.2.2", 1400)]
    monkeypatch.setattr(sizing, "_interfaces", lambda: [(ipaddress.IPv4Address(at), mtu) for at, mtu in known])
    assert [mtu_at(host) for host in ("127.0.0.1", "127.1.2.3", "localhost", "10.0.0.1", "192.0.2.2")] == [
        *(65536, 65536, 65536, 9000, 1400)
    ]
    assert mtu_at("0.0.0.0") == 1400
    assert mtu_at("198.51.100.1") == mtu_at("no such host") == 1400


def test_loopback_carries_a_whole_result():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: IP_PMTUDISC_DO, so that the kernel cuts nothing
        probe.sendto(bytes(HEADER.itemsize + 4 * elements_for("127.0.0.1") + TAIL_BYTES), ("127.0.0.1", 9))
        assert elements_for("127.0.0.1") == MOST


@pytest.mark.parametrize("ports", [1, 4])
@pytest.mark.parametrize("buffer_bytes", [4096, 1 << 16, 212_992, 1 << 23])
def test_the_window_fits_half_of_a_port_s_buffer(ports, buffer_bytes):
    sockets = open_ports("127.0.0.1", [0] * ports)
    try:
        for opened in sockets:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        granted = sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        config = config_for(sockets)
        datagram_bytes = HEADER.itemsize + 4 * config.elements + TAIL_BYTES
        assert config.ports == ports and config.elements == MOST
        assert 2 * config.window * datagram_bytes <= granted or config.window == 1
        assert 4 * config.window * datagram_bytes > granted or config.window == Config.window
        given = config_for(sockets, members=2, jobs=4, window=32, elements=16)
        assert given == Config(ports=ports, members=2, jobs=4, window=32, elements=16, half_width=True)
    finally:
        for opened in sockets:
            opened.close()
