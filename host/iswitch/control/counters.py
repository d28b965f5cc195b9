"""A sentence for every counter of the switch."""

from enum import IntEnum
from typing import NamedTuple

from iswitch.control.refusals import RESUME

__all__ = ["COUNTERS", "Counter", "Severity", "counter_entry", "explain_counter", "rise_lines", "unusual_rises"]


class Severity(IntEnum):
    """What a counter above zero indicates about a network."""

    NORMAL = 0
    """Normal operation."""
    NOTABLE = 1
    """Happens occasionally where packets get lost, workers wait, or a job has ended."""
    FAULT = 2
    """A fault that needs attention."""


class Counter(NamedTuple):
    """What a counter counts.

    Attributes
    ----------
    severity : Severity
        What a value above zero indicates about the network.
    meaning : str
        The event that is counted.
    remedy : str
        What to do if the count is high; "" if there is nothing to do.
    """

    severity: Severity
    meaning: str
    remedy: str = ""


COUNTERS: dict[str, Counter] = {
    "ORDINARY": Counter(Severity.NORMAL, "ordinary frames, forwarded as by any switch"),
    "ADDED": Counter(Severity.NORMAL, "contributions added to a sum"),
    "QUARANTINED": Counter(
        Severity.FAULT,
        "contributions with NaN, an infinity or a number out of the job's range, left out of their sums",
        "look for a worker that diverges, or join with a smaller `fraction` for a wider range",
    ),
    "RECEIPT": Counter(Severity.NORMAL, "receipts for results"),
    "CONTROL": Counter(Severity.NORMAL, "control messages executed, and claims granted"),
    "REFUSED": Counter(
        Severity.NOTABLE,
        "the first Join of each worker, which asks for the job's challenge; also Joins with other settings than the "
        "job's, a wrong key or token (or keys that `iswitch doctor` checked), and claims with weights that are too old",
        "do nothing if it rises by one for each worker that joins; else read the error of the worker that could not "
        "join; if the claims of one worker are refused each time, raise `staleness`",
    ),
    "DUPLICATE": Counter(
        Severity.NOTABLE,
        "repeated contributions and claims: retransmissions, normal where packets get lost or workers wait",
        "if they are nearly as many as ADDED, look for packet loss and for a slow worker (`iswitch top`)",
    ),
    "LATE": Counter(
        Severity.NOTABLE,
        "contributions that came after their sum was complete without them (threshold below world)",
        "if the threshold is meant to leave out slow workers, do nothing; else raise it",
    ),
    "STALE": Counter(
        Severity.NOTABLE,
        "contributions for an earlier lap of the ring, and claims older than the last one: packets delayed for long, "
        "or a "
        "desynchronised worker",
        "if the count rises, make new Workers: one worker repeats a collective that all others have finished",
    ),
    "WINDOW": Counter(
        Severity.FAULT,
        "contributions too far ahead of the results that their sender has, or to an update that their sender was not "
        "granted: a driver that ignores the window or its grants",
        "use this package's driver, or see section 3 of docs/protocol.md",
    ),
    "UNHELD": Counter(
        Severity.NOTABLE,
        "claims with weights for which their sender has sent no receipt: the receipt was lost or overtaken",
        "if the count rises, a worker claims with weights that it does not have: use this package's driver, or see "
        "section 3 of "
        "docs/protocol.md",
    ),
    "SLOT_HELD": Counter(
        Severity.NOTABLE,
        "contributions that came before every worker had the earlier result of the same slot: a worker lags "
        "behind, or has died without leaving",
        "find the worker with `iswitch top`; end its job with `iswitch end-job`",
    ),
    "FORMING": Counter(
        Severity.NOTABLE,
        "contributions that came before all workers of the job had joined",
        "start the missing workers",
    ),
    "JOB": Counter(
        Severity.NOTABLE,
        "frames for a job that does not exist: it was ended, or its number is wrong (or they are from `iswitch "
        "doctor`)",
        "if the count rises, stop the workers of the job that was ended",
    ),
    "EPOCH": Counter(
        Severity.NOTABLE,
        "frames from before the job was reset",
        "if the count rises, stop the workers that missed the reset",
    ),
    "HALTED": Counter(Severity.NOTABLE, "contributions to a halted job", RESUME),
    "MEMBER": Counter(
        Severity.NOTABLE,
        "frames from a worker that is not, or no longer, a member of its job",
        "if the count rises, make a new Worker there",
    ),
    "TOKEN": Counter(
        Severity.NOTABLE,
        "frames with a wrong token: from a worker of an earlier job with this number",
        "if the count rises, stop the worker of the earlier job",
    ),
    "PORT": Counter(
        Severity.FAULT,
        "frames that entered at another port than the one at which their sender joined",
        "check the cabling for a loop or a moved cable, and make new Workers",
    ),
    "ADDRESS": Counter(
        Severity.FAULT,
        "frames from another MAC, IP or UDP address than that of their sender: network address translation, or a "
        "worker that was moved",
        "take address translation and bonding out of the path, and make new Workers",
    ),
    "VERSION": Counter(
        Severity.FAULT,
        "frames of another version of the protocol: driver and switch do not match",
        "install the driver of the switch's version",
    ),
    "TYPE": Counter(
        Severity.FAULT,
        "frames of a type that this switch does not serve",
        "look for a driver made for another build of the switch",
    ),
    "LENGTH": Counter(
        Severity.FAULT,
        "contributions of a wrong length",
        "workers reduce arrays of different sizes, or in a different order: use the "
        "same sizes in the same order on all workers",
    ),
    "COLLECTIVE": Counter(
        Severity.FAULT,
        "contributions to another collective than that of their sum: workers are at different steps, or have applied "
        "different results. They were not added",
        "on all workers of the job call `rejoin`, then `sync_state`",
    ),
    "FORMAT": Counter(
        Severity.FAULT,
        "contributions in another number format than their sum",
        "workers call different collectives: call the same ones in the same order on all workers",
    ),
    "IP_CHECKSUM": Counter(
        Severity.FAULT,
        "frames with a wrong IPv4 header checksum: damaged on the path",
        "look for a faulty device on the path: the checks of the links did not notice the damage",
    ),
    "UDP_CHECKSUM": Counter(
        Severity.FAULT,
        "frames with a wrong UDP checksum: damaged on the path",
        "look for a faulty device on the path, or for broken checksum offload: the checks of the links did not notice "
        "the damage",
    ),
    "FILTERED": Counter(
        Severity.NORMAL,
        "ordinary frames whose receiver is behind the port they came from: another switch there has already "
        "delivered them",
    ),
    "RESERVED": Counter(
        Severity.NORMAL, "ordinary frames that no bridge forwards (pause, LACP, LLDP: 01-80-C2-00-00-01 to -0F)"
    ),
    "FLOOD_LIMITED": Counter(
        Severity.FAULT,
        "broadcasts, multicasts and frames to unknown stations beyond what a port may flood: a loop or a storm",
        "look for a second path between two switches, and for the sender; turn on spanning tree at the neighbours",
    ),
    "ANSWERED": Counter(Severity.NORMAL, "ARP and ping requests for the switch itself, answered"),
    "UNANSWERED": Counter(
        Severity.NOTABLE,
        "frames to the switch's own MAC address that are neither iswitch packets nor ARP or ping requests for its "
        "IPv4 address",
        "look for a wrong UDP port (26963 is right), or for a host that uses the switch as its router",
    ),
    "REPLAY": Counter(Severity.NORMAL, "requests passed to the replay service"),
    "SPOOFED": Counter(
        Severity.FAULT,
        "frames with the switch's own MAC or IPv4 address as their source, or iswitch packets from a group address; "
        "dropped",
        "look for a host with the switch's address, for an attacker, or for a cable that leads back to the switch",
    ),
    "RESULTS": Counter(Severity.NORMAL, "results completed"),
    "RESENT": Counter(
        Severity.NOTABLE,
        "results resent to one worker: packets from the switch get lost",
        "if there are many, look for TX_DROP_GRANT, and for receivers whose buffers are too small (net.core.rmem_max)",
    ),
    "FORCED": Counter(
        Severity.NOTABLE, "slots completed without a sum of their last frame (a worker left, or was quarantined)"
    ),
    "NOTICES": Counter(Severity.NORMAL, "notices sent to senders that are not members"),
    "NOTICES_SUPPRESSED": Counter(Severity.NOTABLE, "notices suppressed to limit their rate"),
    "TERMS_FLUSHED": Counter(
        Severity.NOTABLE,
        "non-zero numbers that were rounded to zero",
        "the gradients are too small for the job's `fraction`: raise it",
    ),
    "EVICTED": Counter(
        Severity.FAULT,
        "members evicted, because they were silent for longer than `evict_s` while others waited for them",
        "look for workers that died, or raise `evict_s`",
    ),
    "ADMITTED": Counter(Severity.NORMAL, "admissions of joining workers to a running job"),
    "REPLAY_DROPPED": Counter(
        Severity.NOTABLE,
        "requests dropped at the full queue of the replay service",
        "the clients send more than the service can serve: use smaller windows, or fewer actors",
    ),
    "SATURATED": Counter(
        Severity.NOTABLE,
        "priorities too large for the replay tree, stored as the largest one",
        "make the client's `scale` smaller",
    ),
    "MEMORY_ERRORS": Counter(
        Severity.FAULT,
        "errors reported by the memory of the replay service: the data of that access is lost",
        "check the board's memory, and that it is as large as the service was built for",
    ),
    "replay.DONE": Counter(Severity.NORMAL, "requests executed by the replay service"),
    "replay.REPEATED": Counter(
        Severity.NOTABLE,
        "repeated requests, answered from the reply cache: normal where packets get lost",
        "if they are nearly as many as DONE, look for packet loss",
    ),
    "replay.AHEAD": Counter(
        Severity.NOTABLE, "requests that came before one with a lower number: packets get lost or overtaken"
    ),
    "replay.OLD": Counter(
        Severity.NOTABLE, "repeated requests whose reply has left the reply cache: packets delayed for long"
    ),
    "replay.CHALLENGE": Counter(
        Severity.NORMAL,
        "requests for a session without the present challenge: the first of each client, and late copies",
    ),
    "replay.SESSION": Counter(
        Severity.NOTABLE,
        "requests without a session: from a client that closed, or was silent while another client needed its session",
        "if the count rises, make a new client there",
    ),
    "replay.FULL": Counter(
        Severity.FAULT,
        "clients for which there was no free session",
        "close clients that are not needed, or build the switch with more `sessions`",
    ),
    "replay.KIND": Counter(
        Severity.FAULT,
        "requests of an unknown kind: client and switch do not match",
        "install the client of the switch's version",
    ),
    "replay.TABLE": Counter(
        Severity.FAULT,
        "requests for a table that does not exist",
        "compare the client's `table` with the switch's `tables`",
    ),
    "replay.LENGTH": Counter(
        Severity.FAULT,
        "requests of a wrong length: client and switch do not match",
        "install the client of the switch's version",
    ),
    "replay.RANGE": Counter(
        Severity.FAULT,
        "writes that do not begin at the end of a log, parameters that are not in a log, and limits out of range",
        "use this package's client, or see docs/replay.md",
    ),
    "replay.MEMORY": Counter(
        Severity.FAULT, "writes to a full log", "make the logs larger (`log_bytes`), or keep fewer items (`capacity`)"
    ),
    "replay.TICKET": Counter(Severity.NOTABLE, "requests that came before their ticket was due, and are repeated"),
    "replay.ITEMS": Counter(
        Severity.NOTABLE,
        "samples that waited for more items",
        "if `min_size_to_sample` is meant to do that, do nothing; else look at the actors",
    ),
    "replay.RATE": Counter(
        Severity.NOTABLE,
        "samples or inserts that waited for the rate limiter",
        "if `samples_per_insert` is meant to do that, do nothing",
    ),
    "replay.EMPTY": Counter(
        Severity.NOTABLE,
        "samples from a table in which all priorities are 0",
        "look at the priorities that the actors send",
    ),
    "replay.OVERWRITTEN": Counter(
        Severity.NOTABLE,
        "requests for records or log units that are overwritten",
        "if there are many, the learner is too slow for this `capacity`",
    ),
    "CORRUPT": Counter(
        Severity.FAULT,
        "frames dropped because of a bit error in the switch's memory: in their headers while they waited, or in a row "
        "about their job, which was ended then",
        "if CORRUPT_JOBS is not 0, start the workers of the job again; if it happens again, replace the board",
    ),
    "CORRUPT_JOBS": Counter(
        Severity.FAULT,
        "jobs that the switch ended because its memory had a bit error in a row about them",
        "start the workers of the job again; if it happens again, replace the board",
    ),
    "CORRUPT_SUMS": Counter(
        Severity.FAULT,
        "words of sums and contributions with a bit error in the switch's memory; their results leave with a wrong "
        "checksum, so that no worker takes them",
        "the collective ends with CollectiveTimeoutError: reset the job and repeat it; if it happens again, replace "
        "the board",
    ),
    "CORRUPT_PRIORITIES": Counter(
        Severity.FAULT,
        "bit errors in the priorities of a replay table or in their sums; the table is not sampled until it is rebuilt",
        "rebuild the table: `iswitch rebuild-replay`; if it happens again, replace the board",
    ),
    "CORRUPT_REPLAY": Counter(
        Severity.FAULT,
        "bit errors in what the replay service keeps besides priorities; a session, an item, an answer or a request is "
        "lost, but no answer is wrong (docs/replay.md, Bit errors)",
        "a client that raises SessionLostError calls `reopen`; if it happens again, replace the board",
    ),
    "replay.CORRUPT": Counter(
        Severity.FAULT,
        "samples and lists that a replay table refused after a bit error",
        "rebuild the table: `iswitch rebuild-replay`",
    ),
    "RX_ERROR": Counter(Severity.FAULT, "frames with a bad frame check sequence", "check cable and transceiver"),
    "RX_RUNT": Counter(
        Severity.FAULT,
        "frames below 60 bytes",
        "look for a sender that does not pad, or for a half-duplex link with collisions",
    ),
    "RX_OVERSIZE": Counter(Severity.FAULT, "frames longer than the switch accepts", "lower the MTU"),
    "RX_OVERFLOW": Counter(
        Severity.FAULT,
        "intact frames for which the port's ingress queue had no room: congestion, and no fault of the cable",
        "the stations behind the port send more than the switch takes: start fewer workers there, distribute them over "
        "more ports, or find the sender that floods the port (`RX_FRAMES`)",
    ),
    "TX_DROP_GRANT": Counter(
        Severity.FAULT,
        "GRANTs dropped at a full output queue: congestion, and no fault of the cable",
        "distribute the workers of asynchronous jobs over more ports",
    ),
    "TX_DROP_REPLY": Counter(
        Severity.FAULT,
        "acknowledgements and notices dropped at a full output queue",
        "find out why the link is overloaded or down",
    ),
    "TX_DROP_ORDINARY": Counter(
        Severity.NOTABLE,
        "ordinary frames dropped at a full output queue",
        "if results fill the link, do nothing, since they have priority; else slow the senders down",
    ),
    "TX_AGED": Counter(
        Severity.FAULT,
        "ordinary frames that waited for more than a second at a port, and were discarded",
        "the link is overloaded: distribute the workers over more ports, or slow the senders down",
    ),
    "TX_LINK_DOWN": Counter(
        Severity.NOTABLE,
        "frames discarded because the port's link was down",
        "if the port should be up, check cable and transceiver",
    ),
    "TX_WAIT_RESULT": Counter(
        Severity.NOTABLE,
        "results that waited until the port had room: congestion, and no fault of the cable; none is lost",
        "if the count rises fast, this port limits its workers: distribute them over more ports, or look for ordinary "
        "traffic to them",
    ),
    "TX_EXPIRED_RESULT": Counter(
        Severity.NOTABLE,
        "results that were not sent, because their job went on without the worker, or because another worker had taken "
        "its index",
        "if the count rises, look for workers that are evicted, and for a link that is down",
    ),
    "TX_FRAMES": Counter(Severity.NORMAL, "frames sent"),
    "RX_FRAMES": Counter(Severity.NORMAL, "frames received without an error"),
}
"""All counters, by their names in `iswitch.wire`; counters of a port without the port."""


def counter_entry(name: str) -> Counter:
    """Return what a counter means, by its name: `LENGTH`, `port2.RX_ERROR` or `replay.DONE`. Raises KeyError if there
    is no such counter."""
    return COUNTERS[name if name in COUNTERS else name.rpartition(".")[2]]


def explain_counter(name: str) -> str:
    """Return a sentence on a counter by its name, with its remedy. Raises KeyError if there is no such counter."""
    port, _, _ = name.rpartition(".")
    _, meaning, remedy = counter_entry(name)
    return meaning + (f" ({port})" if port and name not in COUNTERS else "") + (f": {remedy}" if remedy else "")


def unusual_rises(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """Return by how much the counters of drops and unusual events have risen, without those that have not."""
    rises = {name: (count - before.get(name, 0)) % 2**32 for name, count in now.items()}
    return {name: rise for name, rise in rises.items() if rise and counter_entry(name).severity != Severity.NORMAL}


def rise_lines(rises: dict[str, int]) -> list[str]:
    """Return a line for each counter that rose, with its meaning and a remedy."""
    return [f"  {name} +{rise}: {explain_counter(name)}" for name, rise in rises.items()]
