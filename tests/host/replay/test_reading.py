"""Which requests read records and ranges of logs, and what happens to what was overwritten."""

from functools import partial
from types import SimpleNamespace

import numpy as np

from iswitch.replay.messages import Header, Reply
from iswitch.replay.reading import LogRead, RecordRead
from iswitch.wire.replay import FETCH_ROW, LOAD, UNIT_BYTES, Kind


class Session:
    """Keeps the queries, and answers them from the bytes `unit % 251` of log units, of which some were overwritten."""

    def __init__(self, overwritten=()):
        self.config = SimpleNamespace(record_bytes=64, records=22)
        self.overwritten, self.asked = set(overwritten), []

    def query(self, kind, *, count, body, on_reply):
        self.asked.append((kind, count, body, on_reply))
        return len(self.asked)

    def query_group(self, group):
        for k in range(len(group)):
            on_reply = partial(group.on_reply, k)
            self.query(group.kind, count=int(group.counts[k]), body=group.body(k), on_reply=on_reply)

    def answer(self):
        """Answer all queries so far; queries that this leads to remain."""
        asked, self.asked = self.asked, []
        for kind, count, body, on_reply in asked:
            if kind == Kind.FETCH:
                items = np.frombuffer(body, FETCH_ROW)["item"]
                bits = sum(1 << k for k, item in enumerate(items.tolist()) if item in self.overwritten)
                data = b"".join(bytes([item % 251]) * 64 for item in items.tolist())
            else:
                start = int(np.frombuffer(body, LOAD)[0]["start"])
                units = range(start, start + count)
                bits = int(bool(self.overwritten.intersection(units)))
                data = b"" if bits else b"".join(bytes([unit % 251]) * UNIT_BYTES for unit in units)
            on_reply(Reply(Header(0, kind, 0, 0, 0, 0, 0, bits, 0, 0), None, data))


def requests(session):
    """The first unit, session and number of units of each LOAD."""
    rows = [(np.frombuffer(body, LOAD)[0], count) for _, count, body, _ in session.asked]
    return [(int(row["start"]), int(row["session"]), count) for row, count in rows]


def read(session, starts, units, sessions=None):
    sessions = np.zeros(len(starts), np.uint8) if sessions is None else np.array(sessions, np.uint8)
    return LogRead(session, sessions, np.array(starts, np.uint32), units)


def test_records_are_read_22_at_a_time_and_overwritten_ones_are_flagged():
    session = Session(overwritten=[101, 140])
    found = RecordRead(session, np.arange(100, 145, dtype=np.uint32))
    assert [count for _, count, _, _ in session.asked] == [22, 22, 1] and not found.done()
    session.answer()
    assert found.done() and np.flatnonzero(found.overwritten).tolist() == [1, 40]
    assert found.records[:, 0].tolist() == [item % 251 for item in range(100, 145)]


def test_adjacent_ranges_are_read_together_and_each_range_once():
    session = Session()
    found = read(session, [30, 10, 12, 30, 14], 2)
    assert requests(session) == [(10, 0, 6), (30, 0, 2)]
    session.answer()
    assert found.done() and not found.overwritten.any()
    assert found.data[found.index, 0].tolist() == [30, 10, 12, 30, 14]
    assert found.data[found.index, UNIT_BYTES].tolist() == [31, 11, 13, 31, 15]


def test_a_long_range_goes_on_at_unit_0_of_the_same_log():
    session = Session()
    read(session, [2**32 - 30], 66, sessions=[3])
    assert requests(session) == [(2**32 - 30, 3, 22), (2**32 - 8, 3, 22), (14, 3, 22)]


def test_ranges_of_different_sessions_are_not_read_together():
    session = Session()
    read(session, [10, 11], 1, sessions=[1, 2])
    assert requests(session) == [(10, 1, 1), (11, 2, 1)]


def test_long_ranges_are_read_22_units_at_a_time():
    session = Session()
    found = read(session, [100], 50)
    assert requests(session) == [(100, 0, 22), (122, 0, 22), (144, 0, 6)]
    session.answer()
    assert found.data.reshape(50, UNIT_BYTES)[:, 0].tolist() == [unit % 251 for unit in range(100, 150)]


def test_if_some_of_several_ranges_was_overwritten_each_is_read_by_itself():
    session = Session(overwritten=[12])
    found = read(session, [10, 12, 14], 2)
    session.answer()
    assert requests(session) == [(10, 0, 2), (12, 0, 2), (14, 0, 2)] and not found.done()
    session.answer()
    assert found.done() and found.overwritten.tolist() == [False, True, False]
    assert found.data[:, 0].tolist() == [10, 0, 14]


def test_nothing_to_read_is_done_at_once():
    session = Session()
    assert read(session, [], 3).done() and RecordRead(session, np.empty(0, np.uint32)).done() and not session.asked
