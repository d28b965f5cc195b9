"""What requests say, and the UDP payloads of what is sent because of them. Section 2 of `docs/replay.md`.

An ANSWER repeats kind, session, table, seq and token of what it answers; `count` is how many rows follow the STATUS,
`ticket` is 0. Answers to faults repeat what there was, even a kind that does not exist; the answer to an OPEN has the
index that was given, and the token as sent. A kept answer has kind and table of the request that was carried out,
whatever repeats its number: this is how a SKIP learns the truth.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from iswitch.wire import Type, version_type
from iswitch.wire.replay import END, REPLAY_HEADER, SAMPLED_ROW, SAMPLES_PER_FRAGMENT, STATUS, UNIT_BYTES, Fate, Kind
from sim.model.egress.compose import with_complement

__all__ = ["Kept", "Request", "answer", "answers", "data", "request"]

FIELDS = ("kind", "session", "table", "seq", "count", "fragments", "ticket", "token")


class Request(NamedTuple):
    """Header and body of a REQUEST. `kind` may be none that exists; `amount` is the field `count`."""

    kind: int
    session: int
    table: int
    seq: int
    amount: int
    fragments: int
    ticket: int
    token: int
    body: bytes

    def first(self, record: np.dtype) -> Any:
        """The record that the body begins with."""
        return np.frombuffer(self.body, record, 1)[0]

    def rows(self, record: np.dtype) -> Any:
        return np.frombuffer(self.body, record)


class Kept(NamedTuple):
    """An answer, for as often as it is asked for. `rows` are of SAMPLED_ROW."""

    kind: int
    table: int
    status: bytes
    rows: tuple[tuple[int, int], ...] = ()


def request(payload: bytes) -> Request:
    """From a UDP payload of at least a header."""
    header = np.frombuffer(payload, REPLAY_HEADER, 1)[0]
    kind, session, table, seq, amount, fragments, ticket, token = (int(header[name]) for name in FIELDS)
    return Request(kind, session, table, seq, amount, fragments, ticket, token, payload[REPLAY_HEADER.itemsize :])


def header(type: Type, asked: Request, **fields: int) -> bytes:
    """That of a request, but for `fields`, and 0 for what an answer has no use for."""
    record = np.zeros(1, REPLAY_HEADER)
    repeated = {name: getattr(asked, name) for name in ("kind", "session", "table", "seq", "token")}
    for name, value in ({"version_type": version_type(type)} | repeated | fields).items():
        record[name] = value
    return record.tobytes()


def ended(payload: bytes) -> bytes:
    """With the row that makes it sum to zero."""
    return with_complement(payload + bytes(END.itemsize), len(payload) + END.fields["complement"][1])


def status(**fields: int) -> bytes:
    """A STATUS; what is not named is 0."""
    record = np.zeros(1, STATUS)
    for name, value in fields.items():
        record[name] = value
    return record.tobytes()


def answer(asked: Request, shown: bytes, rows: Sequence[tuple[int, int]] = (), **fields: int) -> bytes:
    """One ANSWER: a STATUS and rows."""
    return ended(
        header(Type.ANSWER, asked, count=len(rows), **fields) + shown + np.array(list(rows), SAMPLED_ROW).tobytes()
    )


def answers(asked: Request, kept: Kept) -> list[bytes]:
    """All ANSWERs that a request gets: of drawn rows those fragments that it wants, perhaps none; else one."""
    asked = asked._replace(kind=kept.kind, table=kept.table)
    if kept.kind != Kind.SAMPLE or not kept.rows:
        return [answer(asked, kept.status, kept.rows)]
    most = SAMPLES_PER_FRAGMENT
    return [
        answer(asked, kept.status, kept.rows[k * most : (k + 1) * most], fragments=k)
        for k in range(-(-len(kept.rows) // most))
        if asked.fragments >> k & 1
    ]


def data(asked: Request, payload: bytes, *, gone: int = 0, **fields: int) -> bytes:
    """DATA, whose `ticket` says what is gone."""
    return ended(header(Type.DATA, asked, count=len(payload) // UNIT_BYTES, ticket=gone, **fields) + payload)


def fault(asked: Request, reason: Fate) -> bytes:
    """The answer to a request that is nobody's, or is none."""
    return answer(asked, status(reason=reason))
