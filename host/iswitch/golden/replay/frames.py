"""The records of requests, and the UDP payloads of answers. Section 2 of `docs/replay.md`.

An ANSWER repeats kind, session, table, seq and token of its request. `count` is how many rows follow the STATUS, and
`ticket` is 0, but a CHALLENGE has the challenge there. Answers to faults repeat what there was, even a kind that does
not exist. The answer to an OPEN has the index that was given, and the token as sent. A cached answer keeps the kind and
table of the executed request, even if a request of another kind repeats its number. So the answer to a SKIP shows
whether the SAMPLE was executed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from iswitch.golden.egress.compose import with_complement
from iswitch.wire import Type, version_type
from iswitch.wire.replay import (
    END,
    REPLAY_HEADER,
    SAMPLED_ROW,
    SAMPLES_PER_FRAGMENT,
    STATUS,
    UNIT_BYTES,
    Kind,
    ReplayOutcome,
)

__all__ = ["CachedAnswer", "Request", "answer", "answers", "data", "parse_request"]

FIELDS = ("kind", "session", "table", "seq", "count", "fragments", "ticket", "token")


class Request(NamedTuple):
    """Header and body of a REQUEST. `kind` may not exist. `amount` is the field `count`."""

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
        """Return the record at the start of the body."""
        return np.frombuffer(self.body, record, 1)[0]

    def rows(self, record: np.dtype) -> Any:
        """Return the body as records."""
        return np.frombuffer(self.body, record)


class CachedAnswer(NamedTuple):
    """An answer that is sent again when its request comes again. `rows` are those of SAMPLED_ROW. A test sets `corrupt`
    if the answer or one of its rows has a bit error."""

    kind: int
    table: int
    status: bytes
    rows: tuple[tuple[int, int], ...] = ()
    corrupt: bool = False


def parse_request(payload: bytes) -> Request:
    """Return the request in a UDP payload of at least a header."""
    header = np.frombuffer(payload, REPLAY_HEADER, 1)[0]
    kind, session, table, seq, amount, fragments, ticket, token = (int(header[name]) for name in FIELDS)
    return Request(kind, session, table, seq, amount, fragments, ticket, token, payload[REPLAY_HEADER.itemsize :])


def header(type: Type, request: Request, **fields: int) -> bytes:
    """Return a request's header with other `fields`, and 0 in those that an answer does not use."""
    record = np.zeros(1, REPLAY_HEADER)
    repeated = {name: getattr(request, name) for name in ("kind", "session", "table", "seq", "token")}
    for name, value in ({"version_type": version_type(type)} | repeated | fields).items():
        record[name] = value
    return record.tobytes()


def with_end_row(payload: bytes) -> bytes:
    """Return the payload with the row that makes it sum to zero."""
    return with_complement(payload + bytes(END.itemsize), len(payload) + END.fields["complement"][1])


def status(**fields: int) -> bytes:
    """Return a STATUS. Fields that are not named are 0."""
    record = np.zeros(1, STATUS)
    for name, value in fields.items():
        record[name] = value
    return record.tobytes()


def answer(request: Request, shown: bytes, rows: Sequence[tuple[int, int]] = (), **fields: int) -> bytes:
    """Return the UDP payload of one ANSWER: a STATUS and rows."""
    return with_end_row(
        header(Type.ANSWER, request, count=len(rows), **fields) + shown + np.array(list(rows), SAMPLED_ROW).tobytes()
    )


def answers(request: Request, cached: CachedAnswer) -> list[bytes]:
    """Return all ANSWERs to a request: of sampled rows the fragments that it requests, possibly none; else one."""
    request = request._replace(kind=cached.kind, table=cached.table)
    if cached.kind != Kind.SAMPLE or not cached.rows:
        return [answer(request, cached.status, cached.rows)]
    most = SAMPLES_PER_FRAGMENT
    return [
        answer(request, cached.status, cached.rows[k * most : (k + 1) * most], fragments=k)
        for k in range(-(-len(cached.rows) // most))
        if request.fragments >> k & 1
    ]


def data(request: Request, payload: bytes, *, overwritten: int = 0, **fields: int) -> bytes:
    """Return the UDP payload of DATA. Its `ticket` says which parts were overwritten."""
    return with_end_row(
        header(Type.DATA, request, count=len(payload) // UNIT_BYTES, ticket=overwritten, **fields) + payload
    )


def fault(request: Request, outcome: ReplayOutcome, *, challenge: int = 0) -> bytes:
    """Return the ANSWER to a request that belongs to no session or breaks a rule of form, with the challenge that a
    client must know to open a session."""
    return answer(request, status(outcome=outcome), ticket=challenge)
