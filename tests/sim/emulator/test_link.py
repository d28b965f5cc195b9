"""Links as they are spelled on the command line."""

import pytest

from sim.emulator.faults import Rates
from sim.emulator.link import Link, parse_link, parse_place


def test_links_are_read_as_they_are_meant() -> None:
    assert parse_link("0:3-2:0") == Link((0, 3), (2, 0))
    assert parse_link("0:3-2:0,rate=1e9,delay_us=5,loss=0.01,silent-corrupt=0.5,queue=7") == Link(
        (0, 3), (2, 0), 1e9, Rates(delay_us=5, loss=0.01, silent_corrupt=0.5), 7
    )
    assert parse_place("12:3") == (12, 3)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "0:3",
        "0:3-2",
        "0-1",
        "0:3-2:0-1:1",
        "0:a-1:0",
        "0:3-2:0,luck=1",
        "0:3-2:0,loss",
        "0:3-2:0,loss=x",
        "0:-1-2:0",
    ],
)
def test_links_wrong(given: str) -> None:
    with pytest.raises(ValueError, match="a link must be switch:port-switch:port"):
        parse_link(given)


def test_links_wrong_values() -> None:
    with pytest.raises(ValueError, match="loss must be 0 to 1, not 2"):
        parse_link("0:3-2:0,loss=2")
    with pytest.raises(ValueError, match="a link must join two ports, not 1:1 with itself"):
        parse_link("1:1-1:1")
    with pytest.raises(ValueError, match="a place must be switch:port, not '3'"):
        parse_place("3")


def test_the_two_directions_have_faults_of_their_own() -> None:
    link = Link((0, 0), (1, 0), rates=Rates(loss=0.5))
    lost = []
    for sender in (link.one, link.other):
        wire = link.wire(sender, 1)
        for number in range(100):
            wire.put(bytes([number]) * 60, 0)
        lost.append({number for number in range(100)} - {data[0] for data, _ in wire.pop_due(0)})
    assert lost[0] and lost[1] and lost[0] != lost[1]
