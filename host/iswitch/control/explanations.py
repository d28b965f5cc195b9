"""A sentence for every counter and every refusal of the switch."""

from enum import IntEnum
from typing import NamedTuple

from iswitch.wire import Reason

__all__ = ["COUNTERS", "REFUSALS", "Counter", "Grade", "explain", "explained", "odd_rises"]


class Grade(IntEnum):
    """What a counter above zero says about a network."""

    FINE = 0
    """Normal operation."""
    USUAL = 1
    """Happens now and then where packets get lost, workers wait, or a job has ended."""
    FAULT = 2
    """A fault that needs attention."""


class Counter(NamedTuple):
    """`meaning`: what is counted. `remedy`: what to do if the count is high; empty if there is nothing to do."""

    grade: Grade
    meaning: str
    remedy: str = ""


COUNTERS: dict[str, Counter] = {
    "ORDINARY": Counter(Grade.FINE, "ordinary frames, forwarded as by any switch"),
    "ADDED": Counter(Grade.FINE, "contributions added to a sum"),
    "QUARANTINED": Counter(
        Grade.FAULT,
        "contributions with NaN, an infinity or a number out of the job's range, left out of their sums",
        "look for a worker that diverges, or join with a smaller `fraction` for a wider range",
    ),
    "RECEIPT": Counter(Grade.FINE, "receipts for results"),
    "CONTROL": Counter(Grade.FINE, "control messages executed, and claims granted"),
    "REFUSED": Counter(
        Grade.USUAL,
        "control messages refused: a Join with other parameters than the job's, a wrong key or token "
        "(or keys that `iswitch doctor` checked); and claims with weights that are too old",
        "read the error of the worker that could not join; if the claims of one worker are refused each time, raise `staleness`",
    ),
    "DUPLICATE": Counter(
        Grade.USUAL,
        "repeated contributions and claims: retransmissions, normal where packets get lost or workers wait",
        "if they are nearly as many as ADDED, look for packet loss and for a slow worker (`iswitch top`)",
    ),
    "LATE": Counter(
        Grade.USUAL,
        "contributions that came after their sum was complete without them (threshold below world)",
        "nothing, if the threshold is meant to leave out slow workers; else raise it",
    ),
    "STALE": Counter(
        Grade.USUAL,
        "contributions for an earlier lap of the ring, and claims older than the last one: packets delayed for long, or a "
        "desynchronised worker",
        "if the count rises, make new Workers: one worker repeats a collective that all others have finished",
    ),
    "WINDOW": Counter(
        Grade.FAULT,
        "contributions too far ahead of the results that their sender has, or to an update that their sender was not "
        "granted: a driver that ignores the window or its grants",
        "use this package's driver, or see section 3 of docs/protocol.md",
    ),
    "UNHELD": Counter(
        Grade.USUAL,
        "claims with weights for which their sender has sent no receipt: the receipt was lost or overtaken",
        "if the count rises, a worker claims with weights that it does not have: use this package's driver, or see section 3 of "
        "docs/protocol.md",
    ),
    "SLOT_HELD": Counter(
        Grade.USUAL,
        "contributions that came before every worker had the earlier result of the same slot: a worker lags "
        "behind, or has died without leaving",
        "find the worker with `iswitch top`; end its job with `iswitch end-job`",
    ),
    "FORMING": Counter(
        Grade.USUAL, "contributions that came before all workers of the job had joined", "start the missing workers"
    ),
    "JOB": Counter(
        Grade.USUAL,
        "frames for a job that does not exist: it was ended, or its number is wrong (or they are from `iswitch doctor`)",
        "if the count rises, stop the workers of the job that was ended",
    ),
    "EPOCH": Counter(
        Grade.USUAL,
        "frames from before the job was reset",
        "if the count rises, stop the workers that missed the reset",
    ),
    "HALTED": Counter(Grade.USUAL, "contributions to a halted job", "call `resume` in any of its workers"),
    "MEMBER": Counter(
        Grade.USUAL,
        "frames from a worker that is not, or no longer, a member of its job",
        "if the count rises, make a new Worker there",
    ),
    "TOKEN": Counter(
        Grade.USUAL,
        "frames with a wrong token: from a worker of an earlier job with this number",
        "if the count rises, stop the worker of the earlier job",
    ),
    "PORT": Counter(
        Grade.FAULT,
        "frames that entered at another port than the one at which their sender joined",
        "check the cabling for a loop or a moved cable, and make new Workers",
    ),
    "ADDRESS": Counter(
        Grade.FAULT,
        "frames from another MAC, IP or UDP address than that of their sender: network address translation, or a "
        "worker that was moved",
        "take address translation and bonding out of the path, and make new Workers",
    ),
    "VERSION": Counter(
        Grade.FAULT,
        "frames of another version of the protocol: driver and switch do not match",
        "install the driver of the switch's version",
    ),
    "TYPE": Counter(
        Grade.FAULT,
        "frames of a type that this switch does not serve",
        "look for a driver made for another build of the switch",
    ),
    "LENGTH": Counter(
        Grade.FAULT,
        "contributions of a wrong length",
        "workers reduce arrays of different sizes, or in a different order: use the "
        "same sizes in the same order on all workers",
    ),
    "FORMAT": Counter(
        Grade.FAULT,
        "contributions in another number format than their sum",
        "workers call different collectives: call the same ones in the same order on all workers",
    ),
    "IP_CHECKSUM": Counter(
        Grade.FAULT,
        "frames with a wrong IPv4 header checksum: damaged on the path",
        "look for a faulty device on the path: the checks of the links did not notice the damage",
    ),
    "UDP_CHECKSUM": Counter(
        Grade.FAULT,
        "frames with a wrong UDP checksum: damaged on the path",
        "look for a faulty device on the path, or for broken checksum offload: the checks of the links did not notice "
        "the damage",
    ),
    "FILTERED": Counter(
        Grade.FINE,
        "ordinary frames whose receiver is behind the port they came from: another switch there has already "
        "delivered them",
    ),
    "RESERVED": Counter(
        Grade.FINE, "ordinary frames that no bridge forwards (spanning tree, pause, LLDP: 01-80-C2-00-00-00 to -0F)"
    ),
    "ANSWERED": Counter(Grade.FINE, "ARP and ping requests for the switch itself, answered"),
    "UNANSWERED": Counter(
        Grade.USUAL,
        "frames to the switch's own MAC address that are neither iswitch packets nor ARP or ping requests for its "
        "IPv4 address",
        "look for a wrong UDP port (26963 is right), or for a host that uses the switch as its router",
    ),
    "REPLAY": Counter(Grade.FINE, "requests passed to the replay service"),
    "RESULTS": Counter(Grade.FINE, "results completed"),
    "RESENT": Counter(
        Grade.USUAL,
        "results sent again to one worker: packets from the switch get lost",
        "if there are many, look for TX_DROP_RESULT, and for receivers whose buffers are too small (net.core.rmem_max)",
    ),
    "FORCED": Counter(
        Grade.USUAL, "slots completed without a sum of their last frame (a worker left, or was quarantined)"
    ),
    "NOTICES": Counter(Grade.FINE, "notices sent to senders that are not members"),
    "NOTICES_SUPPRESSED": Counter(Grade.USUAL, "notices suppressed to limit their rate"),
    "TERMS_FLUSHED": Counter(
        Grade.USUAL,
        "non-zero numbers that were rounded to zero",
        "the gradients are too small for the job's `fraction`: raise it",
    ),
    "EVICTED": Counter(
        Grade.FAULT,
        "members evicted, because they were silent for longer than `evict_s` while others waited for them",
        "look for workers that died, or raise `evict_s`",
    ),
    "ADMITTED": Counter(Grade.FINE, "admissions of joining workers to a running job"),
    "REPLAY_DROPPED": Counter(
        Grade.USUAL,
        "requests dropped at the full queue of the replay service",
        "the clients send more than the service can serve: use smaller windows, or fewer actors",
    ),
    "SATURATED": Counter(
        Grade.USUAL,
        "priorities too large for the replay tree, stored as the largest one",
        "make the client's `scale` smaller",
    ),
    "MEMORY_ERRORS": Counter(
        Grade.FAULT,
        "errors reported by the memory of the replay service: the data of that access is lost",
        "check the board's memory, and that it is as large as the service was built for",
    ),
    "replay.DONE": Counter(Grade.FINE, "requests executed by the replay service"),
    "replay.REPEATED": Counter(
        Grade.USUAL,
        "repeated requests, answered from the reply cache: normal where packets get lost",
        "if they are nearly as many as DONE, look for packet loss",
    ),
    "replay.AHEAD": Counter(
        Grade.USUAL, "requests that came before one with a lower number: packets get lost or overtaken"
    ),
    "replay.OLD": Counter(
        Grade.USUAL, "repeated requests whose reply has left the reply cache: packets delayed for long"
    ),
    "replay.SESSION": Counter(
        Grade.USUAL,
        "requests without a session: from a client that closed, or was silent while others needed its place",
        "if the count rises, make a new client there",
    ),
    "replay.FULL": Counter(
        Grade.FAULT,
        "clients for which there was no free session",
        "close clients that are not needed, or build the switch with more `sessions`",
    ),
    "replay.KIND": Counter(
        Grade.FAULT,
        "requests of an unknown kind: client and switch do not match",
        "install the client of the switch's version",
    ),
    "replay.TABLE": Counter(
        Grade.FAULT,
        "requests for a table that does not exist",
        "compare the client's `table` with the switch's `tables`",
    ),
    "replay.LENGTH": Counter(
        Grade.FAULT,
        "requests of a wrong length: client and switch do not match",
        "install the client of the switch's version",
    ),
    "replay.RANGE": Counter(
        Grade.FAULT,
        "writes that do not begin at the end of a log, and parameters outside of every log",
        "use this package's client, or see docs/replay.md",
    ),
    "replay.MEMORY": Counter(
        Grade.FAULT, "writes to a full log", "make the logs larger (`log_bytes`), or keep fewer items (`capacity`)"
    ),
    "replay.TICKET": Counter(Grade.USUAL, "requests that came before their ticket was due, and are repeated"),
    "replay.ITEMS": Counter(
        Grade.USUAL,
        "samples that waited for more items",
        "nothing, if `size` is meant to do that; else look at the actors",
    ),
    "replay.RATE": Counter(
        Grade.USUAL, "samples or inserts that waited for the rate limiter", "nothing, if `ratio` is meant to do that"
    ),
    "replay.EMPTY": Counter(
        Grade.USUAL, "samples from a table in which all priorities are 0", "look at the priorities that the actors send"
    ),
    "replay.OVERWRITTEN": Counter(
        Grade.USUAL,
        "requests for records that are overwritten",
        "if there are many, the learner is slow for this `capacity`",
    ),
    "RX_ERROR": Counter(Grade.FAULT, "frames with a bad frame check sequence", "check cable and transceiver"),
    "RX_RUNT": Counter(
        Grade.FAULT,
        "frames below 60 bytes",
        "look for a sender that does not pad, or for a half-duplex link with collisions",
    ),
    "RX_OVERSIZE": Counter(Grade.FAULT, "frames longer than the switch accepts", "lower the MTU"),
    "TX_DROP_RESULT": Counter(
        Grade.FAULT,
        "results dropped at a full output queue",
        "the link is overloaded or down: spread the workers over more ports",
    ),
    "TX_DROP_REPLY": Counter(
        Grade.FAULT, "acknowledgements and notices dropped at a full output queue", "the link is overloaded or down"
    ),
    "TX_DROP_ORDINARY": Counter(
        Grade.USUAL,
        "ordinary frames dropped at a full output queue",
        "nothing, if results take the link, since they have priority; else slow their senders down",
    ),
    "TX_FRAMES": Counter(Grade.FINE, "frames sent"),
    "RX_FRAMES": Counter(Grade.FINE, "frames received without an error"),
}
"""What a counter counts, by the name it has in `iswitch.wire`; per-port counters without their port."""

REFUSALS: dict[Reason, tuple[str, str]] = {
    Reason.JOB: (
        "there is no such job",
        "check the job number: the job has ended, the switch was restarted, or the switch has fewer `jobs`; a "
        "worker that was in the job calls `rejoin`",
    ),
    Reason.EPOCH: ("the job was reset meanwhile", "call `rejoin`, then `sync_state`"),
    Reason.MEMBER: (
        "the rank is taken, out of range, not one of those below this switch, or not a live member; or the job is a tree of "
        "switches that is running",
        "give every worker its own rank from 0 to world - 1, or rank=None to let the switch choose; no worker can join a running "
        "tree, so end its job at the root and start all workers",
    ),
    Reason.TOKEN: ("the token is not the member's", "make a new Worker"),
    Reason.NUMBER: ("this member has sent a newer control message", "send it again"),
    Reason.KEY: (
        "the key is not the job's",
        "use the job's key, or another job number: another program may have this number",
    ),
    Reason.WORLD: (
        "`world` is not the job's, or more than the switch can hold",
        "start all workers with the same `world`; `iswitch status` shows the most that is possible",
    ),
    Reason.THRESHOLD: (
        "`threshold` is not the job's, not 1 to `world`, or below `world` in a tree of switches",
        "start all workers with the same `threshold`, and in a tree of switches with none",
    ),
    Reason.FORMAT: ("`format` is not the job's, or unknown to the switch", "start all workers with the same `format`"),
    Reason.FRACTION: ("`fraction` is not the job's, or not -126 to 149", "start all workers with the same `fraction`"),
    Reason.ELEMENTS: (
        "`elements` is not the job's, or above the limit of the switch or of its tree of switches",
        "start all workers with the same `elements`, in a tree `Config.uplink_elements`, or leave it out",
    ),
    Reason.MODE: ("`mode` is not the job's", "start all workers with the same `mode`"),
    Reason.DEADLINE: ("`deadline_s` is not the job's, or above 2147 s", "start all workers with the same `deadline_s`"),
    Reason.EVICT: (
        "`evict_s` is not the job's, or not 0 or 0.017 to 536 s",
        "start all workers with the same `evict_s`",
    ),
    Reason.SEQ: (
        "the segment is not open, or must wait for all members",
        "do nothing: the segment is complete, or will be",
    ),
    Reason.STALENESS: (
        "`staleness` is not the job's, above the switch's limit, or not 0 in a synchronous job",
        "start all workers with the same `staleness`, at most 7",
    ),
    Reason.SEGMENTS: (
        "`segments` is not the job's (a Worker in an AsyncWorker's job, or vectors of another `size`), or the switch has no "
        "asynchronous jobs, as in a tree of switches",
        "start all workers of one class and with vectors of the same `size`, each at the same switch",
    ),
    Reason.HALTED: ("the job is halted", "call `resume` at any of its workers"),
    Reason.ACTION: (
        "the switch does not know this action, or its place in a tree of switches forbids it",
        "in a tree of switches, reset a job at the root; halt a job or complete a segment by force only in jobs of one switch; "
        "otherwise use a driver of the switch's version",
    ),
}
"""Per reason of a refusal: what it means and what to do."""


def explained(counter: str) -> Counter:
    """Return the entry of a counter by its name: `LENGTH`, `port2.RX_ERROR` or `replay.OVERWRITTEN`. Raises KeyError if there
    is no such counter."""
    return COUNTERS[counter if counter in COUNTERS else counter.rpartition(".")[2]]


def explain(counter: str) -> str:
    """Return a sentence on a counter by its name, with its remedy. Raises KeyError if there is no such counter."""
    port, _, _ = counter.rpartition(".")
    _, meaning, remedy = explained(counter)
    return meaning + (f" ({port})" if port and counter not in COUNTERS else "") + (f": {remedy}" if remedy else "")


def odd_rises(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """Return how much the counters of drops and unusual events have risen."""
    rises = {name: (count - before.get(name, 0)) % 2**32 for name, count in now.items()}
    return {name: rise for name, rise in rises.items() if rise and explained(name).grade != Grade.FINE}
