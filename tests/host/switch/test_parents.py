"""The option by which a software switch becomes a leaf."""

import pytest

from iswitch.config import Config
from iswitch.switch.parents import parse_parent
from iswitch.switch.software_switch import SoftwareSwitch


def test_ranks_are_a_set_of_spans():
    job, parent = parse_parent("3=127.0.0.1:27000/0-2,7", port=5)
    assert (job, parent.port, parent.ip, parent.ranks) == (3, 5, bytes([127, 0, 0, 1]), 0b1000_0111)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("127.0.0.1:27000/0", "--parent must be JOB=HOST:PORT/RANKS"),
        ("0=127.0.0.1:27000", "--parent must be JOB=HOST:PORT/RANKS"),
        ("0=127.0.0.1:27000/0-32", "--parent ranks must be 0 to 31, not 32"),
        ("0=127.0.0.1:0/0", "--parent port must be 1 to 65535, not 0"),
        ("0=127.0.0.1:65536/0", "--parent port must be 1 to 65535, not 65536"),
        ("0=127.0.0.1:27000/3-1", "--parent ranks must not be empty"),
        ("0=no.such.host.invalid:27000/0", "has no IPv4 address"),
    ],
)
def test_parent_wrong(given, message):
    with pytest.raises(ValueError, match=message):
        parse_parent(given, port=0)


@pytest.mark.parametrize("number", [-1, 2])
def test_set_parent_number_wrong(number):
    switch = SoftwareSwitch(Config(jobs=2), mac=bytes(6), ip=bytes(4), seed=1)
    _, parent = parse_parent("0=127.0.0.1:27000/0", port=0)
    with pytest.raises(ValueError, match=f"set_parent number must be 0 to 1, not {number}"):
        switch.set_parent(number, parent)
