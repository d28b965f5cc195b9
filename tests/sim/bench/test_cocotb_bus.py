"""The watcher of handshakes sees each way in which a stream can break its promise."""

import pytest

from sim.bench.cocotb_bus import Handshake, HandshakeError, Word

FIRST, LAST = Word(data=0x0807060504030201, count=8, last=0), Word(data=9, count=1, last=1)


def judge(*cycles):
    handshake = Handshake("tx0", 8)
    for offered, ready in cycles:
        handshake.cycle(offered, ready)
    return handshake


def test_what_is_held_until_taken_is_right():
    handshake = judge(
        (None, False), (FIRST, False), (FIRST, False), (FIRST, True), (None, True), (LAST, True), (FIRST, True)
    )
    assert handshake.inside
    handshake.cycle(LAST, True)
    assert not handshake.inside


def test_a_truncated_frame_ends_with_an_empty_word():
    assert not judge((FIRST, True), (LAST._replace(count=0, error=1), True)).inside


@pytest.mark.parametrize(
    "cycles, breach",
    [
        ([(FIRST, False), (None, True)], "withdrawn"),
        ([(FIRST, False), (FIRST._replace(data=0), True)], "changed"),
        ([(LAST, False), (LAST._replace(error=1), False)], "changed"),
        ([(LAST._replace(count=0), True)], "0 bytes"),
        ([(FIRST._replace(count=0, error=1), True)], "0 bytes"),
        ([(LAST._replace(count=9), True)], "9 bytes"),
        ([(FIRST._replace(count=7), True)], "short"),
    ],
)
def test_breach_is_named(cycles, breach):
    with pytest.raises(HandshakeError, match=breach):
        judge(*cycles)
