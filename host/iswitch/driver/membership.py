"""The record of one worker's membership of a job: what the worker requested, and what the switch granted."""

from dataclasses import dataclass

from iswitch.wire import NO_MEMBER, Format, Mode

__all__ = ["Membership"]


@dataclass(frozen=True)
class Membership:
    """A worker's place in a job. The driver reads this record; `iswitch.control` negotiates it with the switch.

    Parameters
    ----------
    job : int
        Number of the job at the switch.
    key : int
        Secret of the job's program, 64 bits.
    world : int
        Workers of the job.
    threshold : int
        Workers that complete a sum, as the switch reported it last.
    format : Format
        Number format of the job.
    fraction : int
        Fraction bits of "window64".
    elements : int
        4-byte elements in a segment.
    mode : Mode
        How the switch treats NaN, infinities and elements out of range.
    nonce : int
        64 random bits that identify this worker's Join.
    wanted : int
        The rank that the worker requests, or `NO_MEMBER` if the switch chooses.
    token : int
        32 random bits that authenticate this worker's frames, and the switch's answers to it.
    job_token : int
        Requested, then granted: 32 bits that authenticate the switch's results and GRANTs to all members.
    deadline_us : int
        Microseconds after which a segment completes without the missing workers, 0 if there is no deadline.
    evict_us : int
        Microseconds of silence after which the switch evicts a member that another member waits for, 0 for never.
    staleness : int
        Updates that may lie between a vector's weights and its own update, in an asynchronous job.
    segments : int
        Segments of an update in an asynchronous job, 0 in a synchronous one.
    member : int
        Granted: this worker's rank.
    epoch : int
        Granted: incarnation of the job.
    window : int
        Granted: segments that may be in flight.
    first_seq : int
        Granted: the seq of this worker's first segment.
    """

    job: int
    key: int
    world: int
    threshold: int
    format: Format
    fraction: int
    elements: int
    mode: Mode
    nonce: int
    wanted: int
    token: int
    job_token: int
    deadline_us: int = 0
    evict_us: int = 0
    staleness: int = 0
    segments: int = 0
    member: int = NO_MEMBER
    epoch: int = 0
    window: int = 0
    first_seq: int = 0
