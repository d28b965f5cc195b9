"""A sentence for every counter and every refusal of the switch, for people."""

from enum import IntEnum
from typing import NamedTuple

from iswitch.wire import Reason

__all__ = ["COUNTERS", "REFUSALS", "Counter", "Grade", "explain", "explained", "odd_rises"]


class Grade(IntEnum):
    """What it says about a network that a counter is not zero."""

    FINE = 0
    """Things go well."""
    USUAL = 1
    """Happens now and then where packets get lost, workers wait, or a job has ended."""
    FAULT = 2
    """Somebody should look."""


class Counter(NamedTuple):
    """`meaning`: what was counted. `remedy`: what to do if it bothers; empty if nothing is to be done."""

    grade: Grade
    meaning: str
    remedy: str = ""


COUNTERS: dict[str, Counter] = {
    "ORDINARY": Counter(Grade.FINE, "frames that are not iswitch's, switched like any others"),
    "ADDED": Counter(Grade.FINE, "contributions added to a sum"),
    "QUARANTINED": Counter(
        Grade.FAULT, "contributions with NaN, an infinity or a number out of the job's range, left out of their sums",
        "look for a diverging worker, or join with a smaller `fraction` for a wider range"),
    "RECEIPT": Counter(Grade.FINE, "receipts for results"),
    "CONTROL": Counter(Grade.FINE, "control messages obeyed, and claims taken"),
    "REFUSED": Counter(Grade.USUAL, "control messages refused: a Join with other parameters than the job's, a wrong key or token "
                       "(or keys that `iswitch doctor` tried); and claims with weights that are too old",
                       "read the error of the worker that could not join; if one worker's claims are refused each time, raise `staleness`"),
    "DUPLICATE": Counter(Grade.USUAL, "contributions and claims that had come before: retransmissions, normal where packets get lost or workers wait",
                         "if there are nearly as many as are ADDED, look for loss and for a slow worker (`iswitch top`)"),
    "LATE": Counter(Grade.USUAL, "contributions that came after their sum was complete without them (threshold below world)",
                    "none if that is what the threshold is for; else raise it"),
    "STALE": Counter(Grade.USUAL, "contributions for an earlier lap of the ring, and claims older than the last: packets delayed for long, or a "
                     "worker out of step",
                     "if it rises, make new Workers: one repeats what all others have finished"),
    "WINDOW": Counter(Grade.FAULT, "contributions too far ahead of their sender's results, or to an update that their sender was not granted: a "
                      "driver that ignores the window or its grants",
                      "use this driver, or see section 3 of the protocol"),
    "UNHELD": Counter(Grade.USUAL, "claims with weights that their sender has not said it holds: a receipt was lost or overtaken",
                      "if it rises, a worker claims with weights that it does not have: use this driver, or see section 3 of the protocol"),
    "SLOT_HELD": Counter(Grade.USUAL, "contributions that came before every worker held the result they would replace: a worker lags "
                         "behind, or has died without leaving", "`iswitch top` shows who; end its job with `iswitch reset`"),
    "FORMING": Counter(Grade.USUAL, "contributions that came before all workers of the job had joined", "start the workers that are missing"),
    "JOB": Counter(Grade.USUAL, "frames for a job that does not exist: it was ended, or the number is wrong (or they are `iswitch doctor`'s)",
                   "if it rises, stop the workers that are left over"),
    "EPOCH": Counter(Grade.USUAL, "frames from before the job was reset", "if it rises, stop the workers that were not told of the reset"),
    "HALTED": Counter(Grade.USUAL, "contributions to a job that is halted", "`resume` by any of its workers lets it go on"),
    "MEMBER": Counter(Grade.USUAL, "frames from a worker that is not a member of its job (any more)", "if it rises, make that Worker anew"),
    "TOKEN": Counter(Grade.USUAL, "frames with a wrong token: a worker from an earlier incarnation of the job",
                     "if it rises, stop the worker that is left over"),
    "PORT": Counter(Grade.FAULT, "frames that came in by another port than the one by which their sender joined",
                    "check the cabling for a loop or a moved cable, and make new Workers"),
    "ADDRESS": Counter(Grade.FAULT, "frames from another MAC, IP or UDP port than their sender's: network address translation, or a "
                       "worker that was moved", "take translation and bonding out of the path, and make new Workers"),
    "VERSION": Counter(Grade.FAULT, "frames of another version of the protocol: driver and switch do not match",
                       "use a driver of the switch's version"),
    "TYPE": Counter(Grade.FAULT, "frames of a type that this switch does not serve", "look for a driver made for another build of the switch"),
    "LENGTH": Counter(Grade.FAULT, "contributions of a wrong length", "workers reduce arrays of different sizes, or in a different order: make "
                      "them alike"),
    "FORMAT": Counter(Grade.FAULT, "contributions in another number format than their sum", "workers are in different collectives: make all "
                      "call the same ones in the same order"),
    "IP_CHECKSUM": Counter(Grade.FAULT, "frames with a wrong IPv4 header checksum: damaged on the way",
                           "look for a faulty device on the path: the link's own check did not see it"),
    "UDP_CHECKSUM": Counter(Grade.FAULT, "frames with a wrong UDP checksum: damaged on the way",
                            "look for a faulty device on the path: the link's own check did not see it; or for broken checksum offload"),
    "FILTERED": Counter(Grade.FINE, "ordinary frames whose receiver is behind the port they came from: another switch there has already "
                        "delivered them"),
    "RESERVED": Counter(Grade.FINE, "ordinary frames that no bridge passes on (spanning tree, pause, LLDP: 01-80-C2-00-00-00 to -0F)"),
    "ANSWERED": Counter(Grade.FINE, "ARP requests and pings for the switch itself, answered"),
    "UNANSWERED": Counter(Grade.USUAL, "frames to the switch's own MAC address that are neither iswitch's nor an ARP request or a ping for its "
                          "IPv4 address", "look for a wrong UDP port (26963 is right), or a host that takes the switch for a router"),
    "REPLAY": Counter(Grade.FINE, "requests handed to the replay service"),
    "RESULTS": Counter(Grade.FINE, "results completed"),
    "RESENT": Counter(Grade.USUAL, "results sent again to one worker: packets from the switch get lost",
                      "if there are many, look for TX_DROP_RESULT, and for receivers whose buffers are too small (net.core.rmem_max)"),
    "FORCED": Counter(Grade.USUAL, "slots completed without a sum of their last frame (a worker left, or was quarantined)"),
    "NOTICES": Counter(Grade.FINE, "notices sent to senders that are not members"),
    "NOTICES_SUPPRESSED": Counter(Grade.USUAL, "notices not sent, to keep their rate low"),
    "TERMS_FLUSHED": Counter(Grade.USUAL, "non-zero numbers that rounded to zero", "gradients are too small for the job's `fraction`: raise it"),
    "EVICTED": Counter(Grade.FAULT, "members that were silent for too long while others waited for them",
                       "look for workers that died, or compute for longer than the job's `evict_s`"),
    "ADMITTED": Counter(Grade.FINE, "times that newcomers were let into a running job"),
    "REPLAY_DROPPED": Counter(Grade.USUAL, "requests dropped at the replay service's full queue", "clients ask for more than the service can do: "
                              "give them smaller windows, or fewer actors"),
    "SATURATED": Counter(Grade.USUAL, "priorities too large for the replay tree, taken as the largest", "make the client's `scale` smaller"),
    "MEMORY_ERRORS": Counter(Grade.FAULT, "answers of the memory behind the replay service that say error: what was read or written there is lost",
                             "check the board's memory, and that it is as large as the service was built for"),
    "replay.DONE": Counter(Grade.FINE, "requests of the replay service carried out"),
    "replay.REPEATED": Counter(Grade.USUAL, "requests that came again, answered from what was kept: normal where packets get lost",
                               "if there are nearly as many as are DONE, look for loss"),
    "replay.AHEAD": Counter(Grade.USUAL, "requests that came before one with a lower number: packets get lost or overtaken"),
    "replay.OLD": Counter(Grade.USUAL, "requests that came again after their answer was forgotten: packets delayed for long"),
    "replay.SESSION": Counter(Grade.USUAL, "requests of nobody's session: a client that closed, or was silent while others needed its place",
                              "if it rises, make that client anew"),
    "replay.FULL": Counter(Grade.FAULT, "clients that found no place for a session",
                           "close clients that are not needed, or build with more `sessions`"),
    "replay.KIND": Counter(Grade.FAULT, "requests of a kind that does not exist: client and switch do not match",
                           "use a client of the switch's version"),
    "replay.TABLE": Counter(Grade.FAULT, "requests for a table that does not exist", "look at the client's `table`, and at the switch's `tables`"),
    "replay.LENGTH": Counter(Grade.FAULT, "requests as long as none can be: client and switch do not match",
                             "use a client of the switch's version"),
    "replay.RANGE": Counter(Grade.FAULT, "writes that were not at the end of a log, and parameters that are in none",
                            "use this package's client, or see docs/replay.md"),
    "replay.MEMORY": Counter(Grade.FAULT, "writes to a log that is full", "give logs more room (`log_bytes`), or keep fewer items (`capacity`)"),
    "replay.TURN": Counter(Grade.USUAL, "requests that came before their turn, and come again"),
    "replay.ITEMS": Counter(Grade.USUAL, "draws that waited for items", "none if that is what `size` is for; else look at the actors"),
    "replay.RATE": Counter(Grade.USUAL, "draws or items that waited for the ratio of both", "none if that is what `ratio` is for"),
    "replay.EMPTY": Counter(Grade.USUAL, "draws from a table in which all priorities are 0", "look at the priorities of the actors"),
    "replay.GONE": Counter(Grade.USUAL, "records or units asked for that were there no more",
                           "if there are many, the learner is slow for this `capacity`"),
    "RX_ERROR": Counter(Grade.FAULT, "frames with a bad frame check sequence", "check cable and transceiver"),
    "RX_RUNT": Counter(Grade.FAULT, "frames below 60 bytes", "look for a sender that does not pad, or for a half-duplex link with collisions"),
    "RX_OVERSIZE": Counter(Grade.FAULT, "frames longer than the switch accepts", "lower the MTU"),
    "TX_DROP_RESULT": Counter(Grade.FAULT, "results dropped at a full output queue", "the link is overloaded or down: give it fewer workers, or "
                              "put them on more ports"),
    "TX_DROP_REPLY": Counter(Grade.FAULT, "acknowledgements and notices dropped at a full output queue", "the link is overloaded or down"),
    "TX_DROP_ORDINARY": Counter(Grade.USUAL, "ordinary frames dropped at a full output queue",
                                "none if they yield to results, as they shall; else slow their senders down"),
    "TX_FRAMES": Counter(Grade.FINE, "frames sent"),
    "RX_FRAMES": Counter(Grade.FINE, "frames received whole"),
}
"""What a counter counts, by the name it has in `iswitch.wire`; per-port counters without their port."""

REFUSALS: dict[Reason, tuple[str, str]] = {
    Reason.JOB: ("there is no such job", "it has ended, or the switch was restarted: make new Workers; or the switch has fewer `jobs`"),
    Reason.EPOCH: ("the job has been reset", "start the round again"),
    Reason.MEMBER: ("the rank is taken, out of range, not one that belongs below this switch, or not a live member; or the job is a tree of "
                    "switches and runs",
                    "give every worker its own rank from 0 to world - 1, or rank=None to let the switch choose; after a restart make new Workers; "
                    "nobody joins a running tree: start its job anew"),
    Reason.TOKEN: ("the token is not the member's", "make a new Worker"),
    Reason.NUMBER: ("a newer control message of this member came before", "send it again"),
    Reason.KEY: ("the key is not the job's", "another job has this number: use its key, or another job number"),
    Reason.WORLD: ("`world` is not the job's, or more than the switch can hold",
                   "start all workers with the same world; `iswitch status` shows the most that is possible"),
    Reason.THRESHOLD: ("`threshold` is not the job's, not 1 to world, or below world in a tree of switches",
                       "start all workers with the same threshold, in a tree without one"),
    Reason.FORMAT: ("`format` is not the job's, or unknown to the switch", "start all workers with the same format"),
    Reason.FRACTION: ("`fraction` is not the job's, or not -126 to 149", "start all workers with the same fraction"),
    Reason.ELEMENTS: ("`elements` is not the job's, or above the limit of the switch or of its tree of switches",
                      "start all workers with the same elements, in a tree `Config.uplink_elements`, or leave it out"),
    Reason.MODE: ("`mode` is not the job's", "start all workers with the same mode"),
    Reason.DEADLINE: ("`deadline_s` is not the job's, or above 2147 s", "start all workers with the same deadline"),
    Reason.EVICT: ("`evict_s` is not the job's, or not 0 or 0.017 to 536 s", "start all workers with the same `evict_s`"),
    Reason.SEQ: ("the segment is not open, or waits for all", "nothing: it is over, or will be"),
    Reason.STALENESS: ("`staleness` is not the job's, above the switch's limit, or not 0 in a synchronous job",
                       "start all workers with the same staleness, at most 7"),
    Reason.SEGMENTS: ("`segments` is not the job's, or the switch has no asynchronous jobs, as in a tree of switches",
                      "start all workers with vectors of the same length, each at the same switch"),
    Reason.HALTED: ("the job is halted", "`resume` by any of its workers lets it go on"),
    Reason.ACTION: ("the switch does not know this action, or its place in a tree of switches forbids it",
                    "reset a tree at its root; halt or complete by force only jobs of one switch; else use a driver of the switch's version"),
}
"""Per reason of a refusal: what it means and what to do."""


def explained(counter: str) -> Counter:
    """The entry of a counter by its name, `LENGTH`, `port2.RX_ERROR` or `replay.GONE`; KeyError if there is no such counter."""
    return COUNTERS[counter if counter in COUNTERS else counter.rpartition(".")[2]]


def explain(counter: str) -> str:
    """One sentence on a counter by its name, with what to do; KeyError if there is no such counter."""
    port, _, _ = counter.rpartition(".")
    _, meaning, remedy = explained(counter)
    return meaning + (f" ({port})" if port and counter not in COUNTERS else "") + (f": {remedy}" if remedy else "")


def odd_rises(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """By how much the counters that are not of things going well have risen."""
    rises = {name: (count - before.get(name, 0)) % 2**32 for name, count in now.items()}
    return {name: rise for name, rise in rises.items() if rise and explained(name).grade != Grade.FINE}
