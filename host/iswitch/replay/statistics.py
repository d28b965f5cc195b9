"""The state of table, switch and client at one moment."""

from dataclasses import dataclass, field

from iswitch.replay.log_writer import LogWriter
from iswitch.replay.priorities import Scale, bucket_start
from iswitch.replay.session import Session
from iswitch.replay.writer import Writer
from iswitch.wire import Register
from iswitch.wire.replay import UNIT_BYTES, ReplayOutcome

__all__ = ["Statistics", "read_statistics"]


@dataclass(frozen=True)
class Statistics:
    """What `ReplayClient.statistics` returns.

    Attributes
    ----------
    size : int
        Items in the table.
    adds, samples : int
        Items ever added to the table, and ever sampled from it, modulo 2^32.
    priority_sum : float
        Sum of all priorities of the table.
    min_priority, max_priority : float
        The lowest priority above 0, and the highest priority, each rounded down by at most an eighth; 0 if there is
        none.
    ticket : int
        The table's ticket.
    version : int
        Version of the table's parameters; 0 if there are none.
    outcomes : dict of str to int
        Requests of all clients by what became of them, with the names of `iswitch.wire.replay.ReplayOutcome`.
    own_adds : int
        Items that this client added and the switch acknowledged.
    bytes_sent : int
        Bytes of items and of log units that this client sent, each counted once.
    frames_written, frames_shared : int
        Frames of stacked fields that were written to the log, and that did not have to be written because they were in
        the log.
    log_bytes, log_bytes_used : int
        Size of this client's log, and how much of it is needed.
    saturated : int
        Priorities of this client that were too large for the switch.
    retransmissions : int
        Requests that this client retransmitted.
    window : int
        The most requests that change nothing that this client has in flight.
    delay_s : float
        Seconds from request to answer; 0 if not measured yet.
    """

    size: int
    adds: int
    samples: int
    priority_sum: float
    min_priority: float
    max_priority: float
    ticket: int
    version: int
    outcomes: dict[str, int] = field(repr=False)
    own_adds: int
    bytes_sent: int
    frames_written: int
    frames_shared: int
    log_bytes: int
    log_bytes_used: int
    saturated: int
    retransmissions: int
    window: int
    delay_s: float


def read_statistics(session: Session, writer: Writer, log: LogWriter, scale: Scale) -> Statistics:
    """Read the state of the table and the switch over a session, and that of the session's client."""
    status = session.read_status()
    outcomes = dict(
        zip(ReplayOutcome.__members__, session.control.registers(Register.REPLAY_OUTCOMES, len(ReplayOutcome)))
    )
    writer.process_answers()
    return Statistics(
        size=status.filled,
        adds=status.adds,
        samples=status.sampled,
        priority_sum=status.total / scale.scale,
        min_priority=float(scale.to_real(bucket_start(status.lowest))),
        max_priority=float(scale.to_real(bucket_start(status.highest))),
        ticket=status.ticket,
        version=status.version,
        outcomes=outcomes,
        own_adds=writer.acknowledged,
        bytes_sent=log.bytes_sent + writer.bytes_sent,
        frames_written=writer.frames_written,
        frames_shared=writer.frame_cache.hits,
        log_bytes=session.config.log_bytes,
        log_bytes_used=(log.space.units - log.space.free_units(session.adds)) * UNIT_BYTES,
        saturated=scale.saturated,
        retransmissions=session.channel.retransmissions + session.queries.retransmissions,
        window=int(session.queries.window),
        delay_s=session.channel.timer.delay_s or session.queries.timer.delay_s or 0.0,
    )
