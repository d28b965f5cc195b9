import socket

import pytest

from iswitch import SwitchUnreachableError
from iswitch.driver.address import parse_address, resolve
from iswitch.wire import UDP_PORT


def test_address_without_port_gets_the_switch_s():
    assert parse_address("switch") == ("switch", UDP_PORT)
    assert parse_address("10.0.0.1:7") == ("10.0.0.1", 7)


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("", ""),
        (":1", ""),
        ("host:", "1 to 65535"),
        ("host:x", "1 to 65535"),
        ("host:0", "1 to 65535"),
        ("host:65536", "1 to 65535"),
        ("host:-1", "1 to 65535"),
        ("udp://host:1", 'leave out "udp://"'),
        ("::1", "IPv4"),
        ("[::1]:1", "IPv4"),
        ("fe80::1%eth0", "IPv4"),
    ],
)
def test_address_wrong(address, word):
    with pytest.raises(ValueError, match=f"host:port.*{word}"):
        parse_address(address)


@pytest.mark.parametrize("address", [None, b"host:1", ("127.0.0.1", 27000), 27000])
def test_address_of_a_wrong_type(address):
    with pytest.raises(TypeError, match=r'must be a str such as "10\.0\.0\.1:26963", not '):
        resolve(address)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "two..dots", "x" * 80])
def test_an_unknown_host_is_unreachable(host):
    with pytest.raises(
        SwitchUnreachableError,
        match=r"there is no host .*check the spelling|cannot be looked up.*pass the IPv4 address",
    ):
        resolve(f"{host}:1")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (socket.EAI_NONAME, "there is no host 'board'.*check the spelling"),
        (socket.EAI_AGAIN, "'board' cannot be looked up.*no name server.*resolv.conf"),
    ],
)
def test_an_unknown_name_and_a_silent_name_server_are_distinguished(number, words, monkeypatch):
    def look_up(*_):
        raise socket.gaierror(number, "for some reason")

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    with pytest.raises(SwitchUnreachableError, match=words):
        resolve("board:1")
