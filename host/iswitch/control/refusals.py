"""A sentence for every refusal of a control message by the switch."""

from typing import NamedTuple

from iswitch.wire import Reason

__all__ = ["NO_JOB_FOR_OPERATOR", "REFUSALS", "REFUSED_OPERATOR", "RESUME", "Refusal"]

RESUME = "call `resume` in one of its workers, or run `iswitch resume`"
"""The remedy for a halted job."""


class Refusal(NamedTuple):
    """What a refusal means.

    Attributes
    ----------
    meaning : str
        Why the switch refused, as the end of a sentence.
    remedy : str
        What to do, as an imperative.
    """

    meaning: str
    remedy: str


REFUSALS: dict[Reason, Refusal] = {
    Reason.CHALLENGE: Refusal(
        "the job has changed since the switch last described it", "try again: other workers join, leave or end it now"
    ),
    Reason.PORT: Refusal("this worker is behind another port of the switch now", "call `Worker.rejoin`"),
    Reason.ADDRESS: Refusal("this worker has another address now", "call `Worker.rejoin`"),
    Reason.JOB: Refusal(
        "there is no such job",
        "check the job number: the job has ended, the switch was restarted, or the switch has fewer `jobs`; if this "
        "worker was "
        "in the job, call `Worker.rejoin`, or make a new AsyncWorker",
    ),
    Reason.EPOCH: Refusal(
        "the job was reset meanwhile", "call `Worker.rejoin`, then `sync_state`, or make a new AsyncWorker"
    ),
    Reason.MEMBER: Refusal(
        "the rank is taken, out of range, not one of those below this switch, or not a live member; or the job is a "
        "tree of "
        "switches that is running",
        "give every worker its own rank from 0 to world - 1, or rank=None to let the switch choose; no worker can "
        "join a running "
        "tree, so end its job at the root and start all workers",
    ),
    Reason.TOKEN: Refusal("the token is not the member's", "make a new Worker or AsyncWorker"),
    Reason.NUMBER: Refusal("this member has sent a newer control message", "send it again"),
    Reason.KEY: Refusal(
        "the key is not the job's", "use the key of its workers; another program may have this job number"
    ),
    Reason.OPERATOR_KEY: Refusal(
        "in its tree of switches, a switch has another operator key than the switch above it: this one, or one "
        "between this one and the root",
        "set the operator key of both to the same number",
    ),
    Reason.WORLD: Refusal(
        "`world` is not the job's, or more than the switch can hold",
        "start all workers with the same `world`; `iswitch status` shows the most that is possible",
    ),
    Reason.THRESHOLD: Refusal(
        "`threshold` is not the job's, not 1 to `world`, or below `world` in a tree of switches",
        "start all workers with the same `threshold`, and in a tree of switches with none",
    ),
    Reason.FORMAT: Refusal(
        "`format` is not the job's, or unknown to the switch",
        'start all workers with the same `format`. For "bf16" and "fp16" the switch must be built with '
        "`Config(half_width=True)`, as `iswitch switch` is, and the emulated board with `--half-width`; at another "
        'switch leave `format` out, or pass "window64"',
    ),
    Reason.FRACTION: Refusal(
        "`fraction` is not the job's, or not -126 to 149", "start all workers with the same `fraction`"
    ),
    Reason.ELEMENTS: Refusal(
        "`elements` is not the job's, or above the limit of the switch or of its tree of switches",
        "start all workers with the same `elements`, in a tree of switches the number that `iswitch status` shows for "
        "it, or leave it out",
    ),
    Reason.MODE: Refusal("`mode` is not the job's", "start all workers with the same `mode`"),
    Reason.DEADLINE: Refusal(
        "`deadline_s` is not the job's, or above 2147 s", "start all workers with the same `deadline_s`"
    ),
    Reason.EVICT: Refusal(
        "`evict_s` is not the job's, or not 0 or 0.017 to 536 s", "start all workers with the same `evict_s`"
    ),
    Reason.SEQ: Refusal(
        "the segment is not open, or must wait for all members", "do nothing: the segment is complete, or will be"
    ),
    Reason.STALENESS: Refusal(
        "`staleness` is not the job's, above the switch's limit, or not 0 in a synchronous job",
        "start all workers with the same `staleness`, at most 7",
    ),
    Reason.SEGMENTS: Refusal(
        "`segments` is not the job's (a Worker in an AsyncWorker's job, or vectors of another `size`), or the switch "
        "has no "
        "asynchronous jobs, as in a tree of switches",
        "start all workers of one class and with vectors of the same `size`, each at the same switch",
    ),
    Reason.HALTED: Refusal("the job is halted", RESUME),
    Reason.COLLECTIVE: Refusal(
        "the workers of the job call different collectives", "on all workers call `rejoin`, then `sync_state`"
    ),
    Reason.ACTION: Refusal(
        "the switch does not know this action, or its place in a tree of switches forbids it",
        "in a tree of switches, reset a job at the root; halt a job or complete a segment by force only in jobs of "
        "one switch; "
        "otherwise use a driver of the switch's version",
    ),
}
"""What each refusal means. KEY is a refusal of a job's key."""
NO_JOB_FOR_OPERATOR = Refusal("there is no such job", "`iswitch status` lists the jobs; their numbers begin with 0")
"""What JOB means to an operator."""
REFUSED_OPERATOR = Refusal(
    "the operator key is not the switch's, or the switch has none",
    "use the number with which the switch was built or started, or the key of the job",
)
"""What KEY means to an operator that sent the operator key."""
