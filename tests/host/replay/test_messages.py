"""Requests and replies against frames that were typed by hand from docs/replay.md."""

from pathlib import Path

import numpy as np
import pytest

from iswitch.replay.channel import Channel
from iswitch.replay.messages import encode, parse
from iswitch.replay.request import Request
from iswitch.wire import ADDRESSES
from iswitch.wire.replay import ADD_ROW, FETCH_ROW, SAMPLE, SAMPLED_ROW, UPDATE_ROW, WRITE, Kind, ReplayOutcome

VECTORS = Path(__file__).parents[2] / "vectors"
TOKEN = 0xCAFEBABF
RECORDS = [bytes(range(64)), bytes(range(128, 192))]


def payload(name):
    lines = (VECTORS / f"replay_{name}.hex").read_text(encoding="utf-8").splitlines()
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in lines))[ADDRESSES.itemsize :]


def rows(dtype, *values):
    return np.array(list(values), dtype).tobytes()


def conversation():
    """The ordered requests of the vectors, and the names of their answers."""
    adds = b"".join(rows(ADD_ROW, (priority, 0)) + record for priority, record in zip((0, 300), RECORDS))
    return [
        ("write", "written", Request(Kind.WRITE, count=1, body=rows(WRITE, (3, 2)) + bytes(range(192, 256)))),
        ("add", "added", Request(Kind.ADD, count=2, body=adds, ticket=1)),
        ("sample", "sampled", Request(Kind.SAMPLE, count=3, body=rows(SAMPLE, (2, 0, (1, 2))))),
        ("update", "updated", Request(Kind.UPDATE, count=2, body=rows(UPDATE_ROW, (33, 20), (31, 7)))),
    ]


def test_ordered_requests_and_answers_have_the_bytes_of_the_vectors():
    channel = Channel(session=1, token=TOKEN, first=5, window=4)
    told = conversation()
    for _, _, request in told:
        channel.put(request)
    assert channel.due(0.0) == [payload(name) for name, _, _ in told]
    for _, name, _ in told:
        assert channel.handle_reply(parse(memoryview(payload(name))), 0.1) == ReplayOutcome.DONE
    write, add, sample, update = (request for _, _, request in told)
    assert (channel.pending, channel.oldest) == (0, 9)
    assert (write.status.written, write.status.oldest) == (4, 2) and (
        add.status.adds,
        add.status.filled,
        add.status.ticket,
    ) == (2, 2, 2)
    assert np.frombuffer(sample.rows, SAMPLED_ROW).tolist() == [(33, 300)] * 3 and sample.status.total == 300
    assert (update.status.done, update.status.stale, update.status.total) == (1, 1, 20)


def test_other_requests_have_the_bytes_of_the_vectors():
    nonce = (0x01020304CAFEBABF).to_bytes(8, "little")
    assert encode(Kind.OPEN, token=TOKEN, seq=7, ticket=90, body=nonce) == payload("open")
    assert encode(
        Kind.FETCH, session=1, token=TOKEN, seq=2309737967, count=2, body=rows(FETCH_ROW, (33, 0), (31, 0))
    ) == payload("fetch")
    opened = parse(memoryview(payload("opened")))
    assert (opened.header.kind, opened.header.session, opened.header.seq, opened.status.nonce) == (
        Kind.OPEN,
        1,
        7,
        0x01020304CAFEBABF,
    )


def test_data_is_parsed_like_the_vector():
    reply = parse(memoryview(payload("data")))
    assert (
        reply.status is None
        and reply.header.ticket == 2
        and reply.header.kind == Kind.FETCH
        and reply.rows == RECORDS[1] + bytes(64)
    )


def test_other_messages_are_ignored():
    assert [
        parse(memoryview(data)) for data in (b"", bytes(22), payload("add"), payload("added")[:90], b"\x1c" + bytes(20))
    ] == [None] * 5


def test_a_body_wrong():
    with pytest.raises(ValueError, match="rows of 8 bytes, not 7 bytes"):
        encode(Kind.ADD, body=bytes(7))
