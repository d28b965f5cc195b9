"""A worker of a job: sums, broadcasts and barriers over all its workers, computed by the switch.

One class, what a program calls; windows and time-outs are those of `ring.py`, joining is that of `joining.py`.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NoReturn

import numpy as np

from iswitch.buffers import INT, Bytes, filled, octets_of, summed_as
from iswitch.control import Membership
from iswitch.errors import IswitchError, JobReset, MembershipChanged, NoContributionError, NotAMember, Refused
from iswitch.explain import odd_rises
from iswitch.joining import FORMATS, JobWorker, demand_int, demand_one_of, demand_settings
from iswitch.reduction import Reduction
from iswitch.ring import Notice, Ring, Stalled
from iswitch.sharing import elect, fill, flat
from iswitch.transport import Transport
from iswitch.views import read_slot
from iswitch.wire import DEADLINE_US_MAX, HEADER, NO_MEMBER, Format, Mode, Reason

__all__ = ["Worker"]

_MODES = {"quarantine": Mode.QUARANTINE, "propagate": Mode.PROPAGATE}
_BACKLOG_WINDOWS = 16


class Worker(JobWorker):
    """One of `world` workers that sum arrays in the switch. Making one joins a job, and waits for all the others.

    address: of the switch, "host:port", or "host" for its usual port.
    job, key: which of the switch's jobs, and a number that keeps strangers out of it; the same for all workers.
    rank: 0 to world - 1, or None to be given one; of a tree where some workers are at the root itself, say it. world: number of workers.
    format: "window64" (same bits in any order of arrival), "fp32" (IEEE addition in order of arrival) or "int32".
    fraction: of window64, numbers are rounded to multiples of 2^-fraction and must be below 2^(58 - fraction).
    threshold: a sum is complete with this many workers; below `world`, laggards are left out. None: world.
    mode: a contribution with NaN, an infinity or a number out of range is left out ("quarantine") or makes NaN
    ("propagate"). on_taint: what to do here when that has happened: "warn" (TaintWarning), "raise" (TaintedError, when
    the result is in place) or "ignore".
    elements: numbers in a segment, the same for all workers. None: as many as the switch can, or its tree of switches; of a tree where some
    workers are at the root itself, say `Config.uplink_elements`.
    timeout_s: the longest time without progress in a collective: above the longest time that one worker may compute
    while the others wait. join_timeout_s: the longest wait for the other workers to join.
    backlog: segments of results that are kept while this worker lags behind a job with threshold < world; the others
    can be ahead by this and two windows. None: 16 windows.
    evict_s: a member of whom nothing has come for so long is put out of the job when another one waits for it; 0: never. A worker gives
    signs of life while it computes, from a thread of its own. deadline_s: a segment that has been open for so long is complete with whoever is in
    it; 0: there is no deadline. Choose several times the longest delay of a sum, or a lost packet is a missing worker.
    elastic: join also a job that runs already, in the place of a worker that has left, when its present collective ends.
    transport: another way to the switch than UDP; the worker closes it. plain: see UdpTransport.

    All workers must make the same collectives in the same order. A worker is for one thread. After an error in a
    collective the array holds partly own numbers and partly sums; except after JobReset, NoContributionError and
    TaintedError the worker then is out of step with the others, and the job needs a `reset`.

    An elastic job: begin with `share`, call it again whenever `changed` says so, `rejoin` after NotAMember.

    A worker leaves its job
    when the `with` block or the interpreter ends, whatever the reason, but not when its process is killed, and a child of
    `multiprocessing` only at the end of the `with` block: then `iswitch reset` ends the job.

    Raises SwitchUnreachable, Refused, Timeout; ValueError and TypeError for wrong arguments.
    """

    def __init__(self, address: str = "127.0.0.1:27000", *, world: int, job: int = 0, rank: int | None = None,
                 key: int = 0, format: Literal["window64", "fp32", "int32"] = "window64", fraction: int = 44,
                 threshold: int | None = None, mode: Literal["quarantine", "propagate"] = "quarantine",
                 on_taint: Literal["warn", "raise", "ignore"] = "warn", elements: int | None = None,
                 timeout_s: float = 10.0, join_timeout_s: float = 120.0, backlog: int | None = None,
                 evict_s: float = 5.0, deadline_s: float = 0.0, elastic: bool = False,
                 transport: Transport | None = None, plain: bool = False):
        demand_settings(world=world, threshold=threshold, job=job, rank=rank, key=key, format=format, fraction=fraction, elements=elements,
                        timeout_s=timeout_s, join_timeout_s=join_timeout_s, evict_s=evict_s)
        demand_one_of("mode", mode, _MODES)
        demand_one_of("on_taint", on_taint, ("warn", "raise", "ignore"))
        demand_int("backlog", 0 if backlog is None else backlog, 0, 2**24)
        if not 0 <= deadline_s * 1e6 < DEADLINE_US_MAX:
            raise ValueError(f"deadline_s must be 0 to {DEADLINE_US_MAX / 1e6:.0f}, not {deadline_s!r}")

        super().__init__(address, timeout_s=timeout_s, join_timeout_s=join_timeout_s, transport=transport, plain=plain)
        self.on_taint = on_taint
        self._any_length = elements is None
        self._broken = ""  # why no collective is possible, as the end of a sentence
        wish = Membership(
            job=job, key=key, world=world, threshold=threshold or world, format=FORMATS[format],
            fraction=fraction, elements=elements or self.config.elements, mode=_MODES[mode],
            deadline_us=int(deadline_s * 1e6), evict_us=int(evict_s * 1e6), nonce=self._nonce(), wanted=NO_MEMBER if rank is None else rank)
        with self._joined(wish, elastic=elastic) as membership:
            self._changed = self._control.newcomer
            backlog = _BACKLOG_WINDOWS * membership.window if backlog is None else backlog
            self._ring = Ring(self._transport, membership, backlog=backlog)
            self._attend(self._ring)

    def _join(self, wish: Membership, *, elastic: bool) -> Membership:
        try:
            return super()._join(wish, elastic=elastic)
        except Refused as refusal:  # in a tree of switches segments are shorter
            if refusal.reason != Reason.ELEMENTS or not self._any_length:
                raise
            return super()._join(replace(wish, elements=self.config.uplink_elements), elastic=elastic)

    # Facts

    @property
    def world(self) -> int:
        """Workers of the job."""
        return self._ring.membership.world

    @property
    def threshold(self) -> int:
        """How many workers complete a sum, as far as this worker knows."""
        return self._ring.membership.threshold

    @property
    def changed(self) -> bool:
        """Newcomers take part from now on, this worker perhaps among them: the next collective must be `share`."""
        return self._changed

    @property
    def elements(self) -> int:
        """Numbers in a segment."""
        return self._ring.membership.elements

    @property
    def segments(self) -> int:
        """Segments of all collectives that this worker has come to the end of."""
        return self._ring.segments

    # Collectives

    def allreduce(self, array: np.ndarray, op: Literal["sum", "mean"] = "sum") -> Reduction:
        """Replaces `array` by its sum, or mean, over the job's workers.

        array: float32 of any shape, writeable; or int32, summed modulo 2^32 (op "sum" only). Not C-contiguous arrays
        are copied there and back. All workers must pass the same number of elements; 0 is possible, and no traffic.
        "mean" divides each segment by the number of workers in it.

        Raises TypeError, ValueError before anything is sent; Timeout, SwitchUnreachable, JobReset, NotAMember,
        Mismatch, NoContributionError, TaintedError.
        """
        format, wire_type = summed_as(array, op, self._ring.membership.format)
        values = np.ascontiguousarray(array, wire_type).reshape(-1)
        reduction = self._collect(values, format)
        if values.size:
            if op == "mean":
                reduction.divide(values)
            if not np.may_share_memory(values, array):
                array[...] = values.reshape(array.shape)
            if reduction.odd or not reduction.whole:
                reduction.judge(everybody=self.threshold == self.world, takes=self._takes(), on_taint=self.on_taint)
        return reduction

    def broadcast(self, buffer: Bytes, root: int = 0) -> Bytes:
        """Gives every worker the bytes of `root`'s buffer; lengths must be equal.

        buffer: bytearray, writeable memoryview or array of any dtype: filled in place and returned; or bytes: returned
        anew. It waits for everybody, whatever the threshold. Raises NoContributionError if the root has left, else
        as `allreduce`.
        """
        demand_int("root", root, 0, self.world - 1)
        data = octets_of(buffer)
        values = np.zeros(-(-data.size // 4), INT)
        if self.rank == root:
            values.view(np.uint8)[:data.size] = data
        reduction = self._collect(values, Format.INT32, whole=True)
        if not (reduction.members >> np.uint32(root) & 1).all():
            raise NoContributionError(f"the broadcast has nothing of its root, rank {root}: it has left the job")
        return buffer if self.rank == root else filled(buffer, values.view(np.uint8)[:data.size])

    def barrier(self) -> None:
        """Returns when every worker has called it, whatever the threshold. Raises as `allreduce`."""
        self._collect(np.zeros(1, INT), Format.INT32, whole=True)

    def share(self, state: np.ndarray | Sequence[np.ndarray], step: int) -> int:
        """Gives every worker the state of the one that is farthest, bit for bit, and returns its step.

        state: arrays of any dtype but objects, writeable, of the same sizes on all workers; filled in place. step: how far this worker's
        state is, 0 to 2^62; of several workers with the highest step the lowest rank's state is taken. The first collective of an elastic
        job, and the next one whenever `changed` is true. If the chosen worker goes meanwhile, another one is. Raises as `allreduce`.
        """
        demand_int("step", step, 0, 2**62)
        arrays = [state] if isinstance(state, np.ndarray) else list(state)
        own = flat(arrays)
        while True:
            election = np.zeros(3 * self.world, INT)
            election[3 * self.rank:3 * self.rank + 3] = 1, step & 0x7FFFFFFF, step >> 31
            self._changed = False
            self._collect(election, Format.INT32, whole=True)
            root, farthest = elect(election)
            values = own.copy() if root == self.rank else np.zeros_like(own)
            # All see the same members and the same change, and so all begin again, or none does.
            if self._changed:
                continue
            if (self._collect(values, Format.INT32, whole=True).members >> np.uint32(root) & 1).all() and not self._changed:
                break
        if root != self.rank:
            fill(arrays, values)
        return farthest

    # The job

    def set_threshold(self, threshold: int) -> None:
        """From now on `threshold` workers complete a sum, for all workers of the job. Refused, SwitchUnreachable."""
        demand_int("threshold", threshold, 1, self.world)
        self._demand_open()
        with self._attendant:
            self._ring.membership = self._control.set_h(self._ring.membership, threshold)
            self._ring.set_threshold(threshold)

    def reset(self) -> None:
        """Begins the job anew with the same members: what is under way is dropped, in the others JobReset is raised by
        their present or next collective, which they then do again.

        After a Timeout every worker that had one calls this and does its collective again: the first call resets the job, the
        later ones find that it was reset and join in. If two call it in the same moment, one of them gets JobReset once more.
        """
        self._demand_open()
        with self._attendant:
            m = self._ring.membership
            known = self._control.renew(m) if self._broken else m
            if known.epoch == m.epoch:
                try:
                    known = self._control.reset(m)
                except Refused as refused:
                    if refused.reason != Reason.EPOCH:
                        raise
                    known = self._control.renew(m)
            self._ring.restart(known)
            self._broken = ""

    def rejoin(self) -> None:
        """After NotAMember: joins the job again, or founds it anew after a restart of the switch. The next collective must be `share`.
        Refused, SwitchUnreachable, Timeout."""
        self._demand_open()
        with self._attendant:
            m = replace(self._ring.membership, nonce=self._nonce(), token=0)
            self._ring.restart(self._join(m, elastic=True))
            self._state["member"], self._broken, self._changed = True, "", True

    def halt(self) -> None:
        """Suspends the job: collectives of all its workers wait, with a HaltedWarning, until one calls `resume`. Refused,
        SwitchUnreachable."""
        self._switch_on(False)

    def resume(self) -> None:
        """Lets a halted job go on. Refused, SwitchUnreachable."""
        self._switch_on(True)

    def _switch_on(self, on: bool) -> None:
        self._demand_open()
        with self._attendant:
            self._control.halt(self._ring.membership, not on)

    def leave(self) -> bool:
        self._broken = "it has left the job"
        return super().leave()

    # Within

    def _absorb(self, buffer: memoryview, size: int, segment_bytes: int) -> None:
        if not self._broken:
            with contextlib.suppress(Notice):  # the next collective will get it again
                self._ring.absorb(buffer, size, segment_bytes)

    def _tend(self) -> float:
        try:
            if not self._broken:
                return self._ring.tend()
            return self._ring.discard()
        except Notice:
            return 1.0

    def _takes(self) -> str:
        """What numbers the job takes, as a sentence."""
        m = self._ring.membership
        if m.format != Format.WINDOW64:
            return f'A job of format "{m.format.name.lower()}" takes finite numbers'
        return (f"With fraction={m.fraction} a job takes |x| < 2^{58 - m.fraction}; a smaller `fraction`, the same for all workers, "
                "takes larger numbers and rounds small ones more coarsely")

    def _collect(self, values: np.ndarray, format: Format, *, whole: bool = False) -> Reduction:
        """Sums `values` (1-D, C-contiguous, 4 bytes each, little-endian) over the job, in place; `whole`: over everybody."""
        self._demand_open()
        if self._broken:
            raise IswitchError(f"this worker can take part in no collective: {self._broken}")
        if self._changed:
            raise MembershipChanged("newcomers were let into the job and wait for its state: call `share` before the next collective, on all "
                                    "workers (`changed` says when)")
        m = self._ring.membership
        if not values.size:
            return Reduction(m.world, m.elements, 0, np.zeros(0, HEADER))
        with self._attendant:
            self._broken = "an earlier one failed half-way. Call `reset`, then do it again"
            try:
                headers, resent, odd, self._changed = self._ring.reduce(values, format, self.timeout_s, whole=whole)
            except Notice as notice:
                self._noticed(notice.reason)
            except Stalled as stalled:
                self._stalled(str(stalled))
            self._broken = ""
        return Reduction(m.world, m.elements, resent, headers, odd)

    def _noticed(self, reason: Reason) -> NoReturn:
        m = self._ring.membership
        if reason == Reason.EPOCH:
            try:
                self._ring.restart(self._control.renew(m))
            except NotAMember as gone:
                self._broken, self._state["member"] = str(gone), False
                raise
            self._broken = ""
            raise JobReset(f"{self._where} was reset by another worker: all begin again with the next collective") from None
        self._state["member"] = False
        self._broken = f"{self._where} does not know it any more. Call `rejoin`, then `share`, or make a new Worker"
        raise self._gone(reason, "call `rejoin`, then `share`, or make a new Worker") from None

    def _stalled(self, progress: str) -> NoReturn:
        """Timeout with the counters that rose, or SwitchUnreachable."""
        now = self._control.counters(self.config.ports)
        risen = odd_rises(self._before, now)
        m = self._ring.membership
        live = self._control.job(m.job).live
        slot = read_slot(self._control, m.job, self._ring.low, m.window)
        missing = slot.missing if slot.seq == self._ring.low else []
        differ = [what for what, outcome in (("size", "LENGTH"), ("number format", "FORMAT")) if outcome in risen]
        cause = (f"most likely they reduce arrays of different {' and '.join(differ)}" if differ else
                 f"{_ranks(missing) if missing else 'most likely one of them'} {'are' if len(missing) > 1 else 'is'} not in this collective "
                 "(computing, stopped, killed, or in another one)")
        raise self._timeout(f"no result for {self.timeout_s:g} s in a collective of {self._where}: {progress}. "
                            f"{live} of {m.world} workers are members; the switch answers, so {cause}. To go on, all call `reset` and do it "
                            "again; without a worker that is gone, after `set_threshold`.", risen) from None


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

