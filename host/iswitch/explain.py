"""A sentence for every counter and every refusal of the switch, for people."""

from iswitch.wire import Reason

__all__ = ["COUNTERS", "HARMLESS", "REFUSALS", "explain"]

COUNTERS: dict[str, str] = {
    "ORDINARY": "frames that are not iswitch's, switched like any others",
    "ADDED": "contributions added to a sum",
    "QUARANTINED": "contributions with NaN, an infinity or a number out of the job's range, left out of their sums: "
                   "look for a diverging worker, or join with a smaller `fraction` for a wider range",
    "RECEIPT": "receipts for results",
    "CONTROL": "control messages obeyed",
    "REFUSED": "control messages refused: a Join with other parameters than the job's, a wrong key or token",
    "DUPLICATE": "contributions that had come before: retransmissions, normal where packets get lost or workers wait",
    "LATE": "contributions that came after their sum was complete without them (threshold below world)",
    "STALE": "contributions for an earlier lap of the ring: packets delayed for long, or a worker out of step",
    "WINDOW": "contributions too far ahead of their sender's results: a driver that ignores the window",
    "SLOT_HELD": "contributions that came before every worker held the result they would replace: a worker lags "
                 "behind, or has died without leaving (end its job with `iswitch reset`)",
    "FORMING": "contributions that came before all workers of the job had joined",
    "JOB": "frames for a job that does not exist: it was ended, or the number is wrong",
    "EPOCH": "frames from before the job was reset",
    "HALTED": "contributions to a job that is halted",
    "MEMBER": "frames from a worker that is not a member of its job (any more)",
    "TOKEN": "frames with a wrong token: a worker from an earlier incarnation of the job",
    "PORT": "frames that came in by another port than the one by which their sender joined: check the cabling",
    "ADDRESS": "frames from another MAC, IP or UDP port than their sender's: network address translation, or a "
               "worker that was moved",
    "VERSION": "frames of another version of the protocol: driver and switch do not match",
    "TYPE": "frames of a type that this switch does not serve",
    "LENGTH": "contributions of a wrong length: workers reduce arrays of different sizes, or in a different order",
    "FORMAT": "contributions in another number format than their sum: workers are in different collectives",
    "IP_CHECKSUM": "frames with a wrong IPv4 header checksum: damaged on the way",
    "UDP_CHECKSUM": "frames with a wrong UDP checksum: damaged on the way",
    "FILTERED": "ordinary frames whose receiver is behind the port they came from: another switch there has already delivered them",
    "RESERVED": "ordinary frames that no bridge passes on (spanning tree, pause, LLDP: 01-80-C2-00-00-00 to -0F)",
    "ANSWERED": "ARP requests and pings for the switch itself, answered",
    "UNANSWERED": "frames to the switch's own MAC address that are neither iswitch's nor an ARP request or a ping for its IPv4 "
                  "address: a wrong UDP port, or a host that takes the switch for a router",
    "RESULTS": "results completed",
    "RESENT": "results sent again to one worker: packets from the switch get lost",
    "FORCED": "slots completed without a sum of their last frame (a worker left, or was quarantined)",
    "NOTICES": "notices sent to senders that are not members",
    "NOTICES_SUPPRESSED": "notices not sent, to keep their rate low",
    "TERMS_FLUSHED": "non-zero numbers that rounded to zero: gradients too small for the job's `fraction`",
    "EVICTED": "members that were silent for too long while others waited for them",
    "ADMITTED": "times that newcomers were let into a running job",
    "RX_ERROR": "frames with a bad frame check sequence: check cable and transceiver",
    "RX_RUNT": "frames below 60 bytes",
    "RX_OVERSIZE": "frames longer than the switch accepts: lower the MTU",
    "TX_DROP_RESULT": "results dropped at a full output queue: the link is overloaded or down",
    "TX_DROP_REPLY": "acknowledgements and notices dropped at a full output queue",
    "TX_DROP_ORDINARY": "ordinary frames dropped at a full output queue",
    "TX_FRAMES": "frames sent",
    "RX_FRAMES": "frames received whole",
}
"""What a counter counts, by the name it has in `iswitch.wire`; per-port counters without their port."""

HARMLESS = {"ORDINARY", "FILTERED", "RESERVED", "ANSWERED", "ADDED", "RECEIPT", "CONTROL", "RESULTS", "NOTICES", "TX_FRAMES",
            "RX_FRAMES"}
"""Counters of things going well; all others count drops and oddities."""

REFUSALS: dict[Reason, tuple[str, str]] = {
    Reason.JOB: ("there is no such job", "it has ended, or the switch was restarted: make new Workers; or the switch has fewer `jobs`"),
    Reason.EPOCH: ("the job has been reset", "start the round again"),
    Reason.MEMBER: ("the rank is taken, out of range, or not a live member",
                    "give every worker its own rank from 0 to world - 1, or rank=None to let the switch choose; after a restart make new Workers"),
    Reason.TOKEN: ("the token is not the member's", "make a new Worker"),
    Reason.NUMBER: ("a newer control message of this member came before", "send it again"),
    Reason.KEY: ("the key is not the job's", "another job has this number: use its key, or another job number"),
    Reason.WORLD: ("`world` is not the job's, or more than the switch can hold",
                   "start all workers with the same world; `iswitch status` shows the most that is possible"),
    Reason.THRESHOLD: ("`threshold` is not the job's, or not 1 to world", "start all workers with the same threshold"),
    Reason.FORMAT: ("`format` is not the job's, or unknown to the switch", "start all workers with the same format"),
    Reason.FRACTION: ("`fraction` is not the job's, or not -126 to 149", "start all workers with the same fraction"),
    Reason.ELEMENTS: ("`elements` is not the job's, or above the switch's limit",
                      "start all workers with the same elements, or leave it out"),
    Reason.MODE: ("`mode` is not the job's", "start all workers with the same mode"),
    Reason.DEADLINE: ("`deadline_s` is not the job's, or above 2147 s", "start all workers with the same deadline"),
    Reason.EVICT: ("`evict_s` is not the job's, or not 0 or 0.02 to 536 s", "start all workers with the same `evict_s`"),
    Reason.SEQ: ("the segment is not open, or waits for all", "nothing: it is over, or will be"),
    Reason.HALTED: ("the job is halted", "`resume` by any of its workers lets it go on"),
    Reason.ACTION: ("the switch does not know this action", "use a driver of the switch's version"),
}
"""Per reason of a refusal: what it means and what to do."""


def explain(counter: str) -> str:
    """One sentence on a counter by its name, `LENGTH` or `port2.RX_ERROR`; KeyError if there is no such counter."""
    port, dot, name = counter.rpartition(".")
    return f"{COUNTERS[name]} ({port})" if dot else COUNTERS[name]
