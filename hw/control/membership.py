"""Who is in a job: the control messages, eviction, and the read-out of the registers."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.aggregate.claims import forget
from hw.aggregate.ring import admission, has_enough, is_complete, lowest, popcount
from hw.control.checks import same_sender
from hw.control.first import first_failing
from hw.control.tables import SENDER, SETTINGS, TICK, Access, Binding, Parent, slot_number, slot_row
from hw.control.views import Views
from hw.layout import layout
from hw.net.parser import Headers
from iswitch.config import Config
from iswitch.wire import (
    ACK, DEADLINE_US_MAX, EVICT_US_MAX, NO_MEMBER, REGISTERS_PER_READ, SEGMENTS_MAX, SILENCE_TICK_US, STALENESS_MAX, UDP_PORT, Action, Format,
    JobState, Mode, Reason, SlotState, Standing, Type,
)

__all__ = ["FRACTION_MAX", "FRACTION_MIN", "Membership"]

FRACTION_MIN, FRACTION_MAX = -126, 149
"""From a least significant bit of 2^126 to the smallest float32 subnormal."""

REJECT_BASE = 58 + 127
"""window64 takes |x| < 2^(58 - F): 64 bits less the sign and 5 for the sum of 32 workers, as a biased exponent."""


def empty(row, kept):
    """A row's fields but those that are written once."""
    return [row[name].eq(0) for name in row.shape().members if name not in kept]


class Membership(wiring.Component):
    """Carries out one control message while `active`, or with `evicts` the departure of `victim`, then shows `done` with the answer until
    `active` falls.

    It owns the tables meanwhile, and after a reset until it has `wiped` them. `forces`: the slot that the tables point at completes
    because of a departure or an FBCAST, is `closed` then, and lets in `admitted`; the operation is handed on when `forced`. A departure walks
    through the ring at three cycles a slot, a Reset and a new job at one; a Read takes 13 cycles, all else at most members + 12. Order of the checks:
    docs/protocol.md section 4; truth: `sim/model/control/membership.py`.

    In a tree (truth: `sim/model/tree_switch.py`) a `leaf`'s parent may have answered: then the frame itself has no answer (not `answers`), and
    may be `unknown`. `asks`: a Join, or a Leave if it `leaves`, is to go to the `parent`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "active": In(1), "evicts": In(1), "victim": In(range(config.members)), "silent": In(config.members), "tick": In(TICK),
            "headers": In(Headers), "tables": Out(Access(config, registers=True)), "wiped": Out(1),
            "random": In(64), "draw": Out(1), "read_address": Out(32), "read_value": In(32),
            "binding": Out(stream.Signature(Binding(config), always_ready=True)),
            "forces": Out(1), "forced": In(1), "closed": Out(slot_row(config)), "admitted": Out(config.members),
            "done": Out(1), "reason": Out(Reason), "member": Out(8), "token": Out(32), "body": Out(layout(ACK)),
            **({"parent": In(Parent), "leaf": In(1), "answers": Out(1), "unknown": Out(1), "asks": Out(1), "leaves": Out(1)}
               if config.uplinks else {}),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        frame, asked, t = self.headers.frame, self.headers.body, self.tables
        job, row = t.job_row, t.member_row
        reason = Signal(Reason)
        index = Signal(range(config.members + 1))
        step = Signal(range(max(config.slots, config.members, REGISTERS_PER_READ) + 2))
        port_same, address_same = same_sender(self.headers, row)
        same = port_same & address_same
        # The headers are there two cycles before anything is asked.
        numbered, action, confirms = Signal(), Signal(Action, reset_less=True), Signal()
        m.d.sync += [numbered.eq(frame.job < config.jobs), action.eq(Mux(asked.action > max(Action), 0, asked.action)),
                     confirms.eq(frame.token != 0)]
        exists = numbered & (job.state != JobState.NONE)
        bit = Signal(config.members)
        registers = Signal(data.ArrayLayout(32, REGISTERS_PER_READ))
        address, counted = Signal(32), Signal(32)
        m.d.sync += counted.eq(self.read_value)
        m.submodules.views = views = Views(config)

        uplinks = config.uplinks
        leaf = self.leaf if uplinks else Const(0)
        m.d.comb += [
            t.job.eq(frame.job), t.member.eq(index), t.slot.eq(slot_number(config, frame.job, step)), self.reason.eq(reason),
            t.job_next.eq(job), t.member_next.eq(row), t.slot_next.eq(t.slot_row), t.have_next.eq(job.first),
            bit.eq(1 << index),
            self.read_address.eq(address), views.address.eq(address), views.tick.eq(self.tick), views.job_row.eq(job), views.member_row.eq(row),
            views.slot_row.eq(t.slot_row), views.have.eq(t.have), views.heard.eq(t.heard),
            self.binding.payload.job.eq(frame.job), self.binding.payload.member.eq(index),
            self.binding.payload.port.eq(self.headers.arrival.port), self.binding.payload.address.mac.eq(frame.eth_src),
            self.binding.payload.address.ip.eq(frame.ip_src), self.binding.payload.address.udp.eq(frame.udp_src),
        ]

        # What a founder and a newcomer say is written with `job_founds` and `member_enters` alone.
        limit, founded, entered = REJECT_BASE - asked.fraction, t.job_next, t.member_next
        m.d.comb += [
            founded.world.eq(asked.world), founded.numeric.eq(asked["format"]), founded.fraction.eq(asked.fraction),
            founded.limit.eq(Mux(limit > 255, 255, limit)), founded.elements.eq(asked.elements), founded.mode.eq(asked.mode),
            founded.key.eq(asked.key), founded.deadline.eq(asked.deadline_us), founded.evict.eq(asked.evict_us),
            founded.staleness.eq(asked.staleness), founded.segments.eq(asked.segments), entered.nonce.eq(asked.nonce),
            entered.port.eq(self.headers.arrival.port), entered.address.mac.eq(frame.eth_src), entered.address.ip.eq(frame.ip_src),
            entered.address.udp.eq(frame.udp_src),
        ]

        forget(m, t.claims_row, t.claims_next, bit)

        def refuse(why):
            m.d.sync += reason.eq(why)
            m.next = "SETTLE"

        m.d.comb += self.admitted.eq(admission(m, self.forces, t.slot_row, self.forced, t))

        kind = frame.version_type[:4]
        answers = Signal() if uplinks else Const(1)
        if uplinks:
            m.d.sync += answers.eq(kind == Type.CONTROL)
        asks, passes, founds = Signal(), Signal(), Signal()

        wiped_job = Signal(range(config.jobs))
        with m.FSM() as fsm:
            m.d.comb += self.wiped.eq(~fsm.ongoing("WIPE"))
            with m.State("WIPE"):
                # A reset clears registers, the ports' members among them, but no memory: empty the tables of who is who.
                m.d.comb += [t.job.eq(wiped_job), t.job_write.eq(1), t.member_write.eq(1), *empty(t.job_next, SETTINGS),
                             *empty(t.member_next, SENDER)]
                m.d.sync += index.eq(index + 1)
                with m.If(index == config.members - 1):
                    m.d.sync += [index.eq(0), wiped_job.eq(wiped_job + 1)]
                    with m.If(wiped_job == config.jobs - 1):
                        m.next = "ENTRY"
            with m.State("ENTRY"):
                m.d.sync += [reason.eq(Reason.DONE), step.eq(0), self.member.eq(frame.member),
                             self.token.eq(frame.token), index.eq(Mux(action == Action.JOIN, 0, frame.member))]
                m.d.sync += [registers.eq(0), address.eq(asked.address)]
                if uplinks:
                    m.d.sync += [asks.eq(0), self.leaves.eq(0), self.unknown.eq(0), passes.eq(0), founds.eq(0)]
                with m.If(self.active & self.evicts):
                    m.d.sync += index.eq(self.victim)
                    m.next = "POINT"
                with m.Elif(self.active & ~answers):
                    m.next = "ABOVE"
                with m.Elif(self.active):
                    with m.Switch(action):
                        with m.Case(Action.JOIN):
                            m.next = "JOIN"
                        with m.Case(Action.READ):
                            m.next = "READ"
                        with m.Case(Action.LEAVE, Action.RESET, Action.SET_H, Action.FBCAST, Action.HALT):
                            m.next = "POINT"
                        with m.Default():
                            refuse(Reason.ACTION)
            self._join(m, refuse, exists, same, confirms, reason, index, step, bit, leaf, founds)
            self._act(m, refuse, exists, same, action, index, step, bit, leaf, asks, passes)
            if uplinks:
                said = data.View(layout(ACK), asked.as_value())
                later = Signal(16)
                known = SimpleNamespace(**{name: Signal(name=name) for name in (
                    "acknowledged", "left", "runs", "declined", "unfit", "astray", "fresh", "moved", "newer")})
                m.d.sync += [
                    known.acknowledged.eq(kind == Type.ACK), known.left.eq(said.action == Action.LEAVE),
                    known.runs.eq(said.state == JobState.RUNNING),
                    known.declined.eq(said.reason != Reason.DONE), known.unfit.eq(said.window != config.window),
                    known.astray.eq(said.nonce != job.up_nonce), known.fresh.eq(frame.token != job.up_token),
                    later.eq(frame.epoch - job.epoch), known.moved.eq(later != 0), known.newer.eq((later != 0) & ~later[15]),
                ]
            with m.State("ABOVE"):
                if uplinks:
                    self._above(m, asks, known)

            with m.State("CLEAR"):
                # Empty slots stand one lap before the first sequence number.
                m.d.comb += [t.slot_write.eq(1), t.slot_next.eq(0), t.slot_next.seq.eq(job.first - config.slots + step),
                             t.have_write.eq(~0), t.claims_write.eq(1), t.claims_next.eq(0), t.claims_next.base.eq(job.first)]
                m.d.sync += step.eq(step + 1)
                with m.If(step == config.slots - 1):
                    m.d.sync += step.eq(0)
                    with m.If((action == Action.JOIN) & answers):
                        m.next = "TOKEN"
                    with m.Else():
                        m.next = "SETTLE"
            with m.State("FORGET"):
                m.d.comb += [t.member_write.eq(1), *empty(t.member_next, SENDER)]
                m.d.sync += index.eq(index + 1)
                with m.If(index == config.members - 1):
                    m.next = "SETTLE"
            with m.State("READ"):
                # What stands at an address is here two cycles later.
                m.d.comb += [t.job.eq(views.job), t.member.eq(views.member), t.slot.eq(views.slot)]
                m.d.sync += [step.eq(step + 1), address.eq(address + 1)]
                for k in range(REGISTERS_PER_READ):
                    with m.If(step == k + 2):
                        m.d.sync += registers[k].eq(Mux(views.viewed, views.value, counted))
                with m.If(step == REGISTERS_PER_READ + 1):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # The rows show the last write two cycles later.
                m.next = "SETTLED"
            with m.State("SETTLED"):
                m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                with m.If(~self.active):
                    m.next = "ENTRY"

        body = self.body
        m.d.comb += [
            body.action.eq(asked.action), body.reason.eq(reason), body.window.eq(config.window),
            body.members.eq(config.members), body.nonce.eq(asked.nonce), body.address.eq(asked.address),
            body.elements.eq(config.elements), body.registers.as_value().eq(registers),
        ]
        with m.If(exists):
            m.d.comb += [
                body.state.eq(job.state), body.elements.eq(job.elements), body.world.eq(job.world),
                body.live.eq(popcount(job.live)), body.first_seq.eq(job.first), body.threshold.eq(job.threshold),
            ]
        if uplinks:
            whole = Cat(job.ranks, Const(0, 32 - config.members)) == self.parent.ranks
            m.d.comb += [self.answers.eq(answers & ~passes),
                         self.asks.eq(asks | (answers & (action == Action.JOIN) & leaf & exists & ~job.up_running & whole))]
            with m.If((action == Action.JOIN) & (reason == Reason.DONE) & leaf & exists):
                m.d.comb += [self.reason.eq(job.up_reason), body.reason.eq(job.up_reason)]
        with m.If((action == Action.JOIN) & (reason == Reason.DONE)):
            m.d.comb += body.standing.eq(Mux(row.pending, Standing.PENDING, Mux((job.live & bit).any(), Standing.LIVE, Standing.JOINING)))
            with m.If((job.newcomers & bit).any()):
                m.d.comb += body.first_seq.eq(job.start)
            with m.If(job.segments.any() & (job.live & bit).any()):
                m.d.comb += body.first_seq.eq(Array(t.have)[index])
        return m

    def _above(self, m, asks, known):
        """The parent answers a Join or a Leave, or gives notice."""
        frame, job, t = self.headers.frame, self.tables.job_row, self.tables
        said, after = data.View(layout(ACK), self.headers.body.as_value()), t.job_next
        it = known
        m.next = "SETTLE"
        with m.If(it.acknowledged):
            with m.If(it.astray):
                m.d.sync += self.unknown.eq(1)
            with m.Elif(it.left):
                m.next = "END"
            with m.Elif(it.declined):
                m.d.comb += [t.job_write.eq(~job.up_running), after.up_member.eq(NO_MEMBER), after.up_token.eq(0),
                             after.up_reason.eq(Mux(said.reason > max(Reason), max(Reason), said.reason))]
                with m.If(said.reason == Reason.TOKEN):
                    m.d.comb += after.up_reason.eq(Reason.DONE)
            with m.Elif(it.unfit):
                m.d.comb += [t.job_write.eq(1), after.up_reason.eq(Reason.ELEMENTS)]
            with m.Elif(it.fresh & ~job.up_running):
                m.d.comb += [t.job_write.eq(1), after.up_member.eq(frame.member), after.up_token.eq(frame.token), after.up_reason.eq(Reason.DONE)]
                m.d.sync += asks.eq(1)
            # An answer to an earlier Join may come late: epochs only rise, one at a Reset.
            with m.Elif(~it.fresh & it.runs & (~job.up_running | it.newer)):
                m.d.comb += [t.job_write.eq(1), after.epoch.eq(frame.epoch), after.first.eq(said.first_seq), after.state.eq(JobState.RUNNING),
                             after.up_running.eq(1), after.joining.eq(0), after.newcomers.eq(0)]
                m.next = "CREATED"
        with m.Elif(it.fresh | ~job.up_running):
            m.d.sync += self.unknown.eq(1)
        with m.Elif(frame.count == Reason.EPOCH):
            m.d.sync += asks.eq(it.moved)
        with m.Else():
            m.next = "END"

    def _join(self, m, refuse, exists, same, confirms, reason, index, step, bit, leaf, founds):
        config = self.config
        uplinks = config.uplinks
        frame, asked, t = self.headers.frame, self.headers.body, self.tables
        job, row = t.job_row, t.member_row
        own_found, own, wanted = Signal(), Signal.like(index), Signal(8)
        free, yielding = Signal(config.members), Signal(config.members)

        # A rank belongs to one member. Nobody joins a tree that runs.
        held, mine, shared, below = Signal(config.members), Signal(32), Signal(), Signal(32)
        other_found, other, shut = Signal(), Signal.like(index), Signal()
        everybody = (1 << asked.world[:6]) - 1
        strange, previous = Signal(), Signal.like(index)
        m.d.sync += [previous.eq(index), below.eq(Mux(leaf, self.parent.ranks, everybody) if uplinks else everybody), strange.eq((mine & ~below).any())]
        if uplinks:
            m.d.sync += shut.eq(exists & (job.tree | leaf) & (job.state != JobState.FORMING))
        with m.State("JOIN"):
            limits = []
            if uplinks:
                # All contribute in a tree, none is asynchronous, and an uplink must fit into a frame.
                tall = leaf | (frame.members & (frame.members - 1)).any()
                limits = [((asked.segments == 0) | (~leaf & (frame.members == 0)), Reason.SEGMENTS),
                          (~tall | (asked.threshold == asked.world), Reason.THRESHOLD),
                          (~tall | (asked.elements <= config.uplink_elements), Reason.ELEMENTS)]
            limits += [
                (frame.job < config.jobs, Reason.JOB),
                ((asked.world != 0) & (asked.world <= config.members), Reason.WORLD),
                ((asked.threshold != 0) & (asked.threshold <= asked.world), Reason.THRESHOLD),
                ((asked["format"] == Format.WINDOW64) | (asked["format"] == Format.FP32) | (asked["format"] == Format.INT32),
                 Reason.FORMAT),
                ((asked.fraction >= FRACTION_MIN) & (asked.fraction <= FRACTION_MAX), Reason.FRACTION),
                ((asked.elements != 0) & (asked.elements <= config.elements), Reason.ELEMENTS),
                (asked.mode <= max(Mode), Reason.MODE), (asked.deadline_us < DEADLINE_US_MAX, Reason.DEADLINE),
                ((asked.evict_us == 0) | ((asked.evict_us >= SILENCE_TICK_US) & (asked.evict_us < EVICT_US_MAX)), Reason.EVICT),
                (asked.staleness <= Mux(asked.segments != 0, config.staleness or STALENESS_MAX, 0), Reason.STALENESS),
                (asked.segments < (SEGMENTS_MAX if config.staleness else 1), Reason.SEGMENTS),
            ]
            agreement = [
                (asked.key == job.key, Reason.KEY), (asked.world == job.world, Reason.WORLD),
                ((asked.threshold == job.threshold) | (job.state != JobState.FORMING), Reason.THRESHOLD),
                (asked["format"] == job.numeric, Reason.FORMAT),
                (asked.fraction == job.fraction, Reason.FRACTION), (asked.elements == job.elements, Reason.ELEMENTS),
                (asked.mode == job.mode, Reason.MODE), (asked.deadline_us == job.deadline, Reason.DEADLINE),
                (asked.evict_us == job.evict, Reason.EVICT), (asked.staleness == job.staleness, Reason.STALENESS),
                (asked.segments == job.segments, Reason.SEGMENTS),
            ]
            limits += [(~exists | agrees, why) for agrees, why in agreement]
            holds = Signal(len(limits))
            m.d.sync += [holds.eq(Cat(good for good, _ in limits)), own_found.eq(0), free.eq(0), yielding.eq(0), index.eq(0), held.eq(0),
                         shared.eq(0), other_found.eq(0), wanted.eq(frame.member),
                         mine.eq(Mux(frame.member[5:] == 0, 1 << frame.member[:5], 0))]
            if uplinks:
                with m.If(frame.members.any()):
                    m.d.sync += [wanted.eq(lowest(frame.members)), mine.eq(frame.members)]
            m.next = "JUDGE"
        with m.State("JUDGE"):
            fails, why = first_failing(zip(holds, (name for _, name in limits), strict=True))
            m.d.sync += reason.eq(Mux(fails, why, Reason.DONE))
            m.next = "SCAN"
        with m.State("SCAN"):
            # The row of `previous` is here while `index` already points at the next.
            m.d.sync += [index.eq(index + 1), step.eq(step + 1)]
            with m.If(step != 0):
                taken = row.pending | row.live
                # While a job forms the silent yield; in one that runs they are evicted when they are waited for.
                yields = row.pending | (row.live & (job.state == JobState.FORMING) & self.silent.bit_select(previous, 1))
                with m.If(taken & (row.nonce == asked.nonce) & same & ~own_found):
                    m.d.sync += [own_found.eq(1), own.eq(previous)]
                with m.If(previous < asked.world):
                    m.d.sync += [free.bit_select(previous, 1).eq(~taken & below.bit_select(previous, 1)),
                                 yielding.bit_select(previous, 1).eq(yields)]
                if uplinks:
                    with m.If(taken):
                        m.d.sync += held.eq(held | row.ranks)
                        with m.If((row.ranks & mine).any() & (previous != wanted)):
                            m.d.sync += [shared.eq(shared | ~yields), other_found.eq(1), other.eq(previous)]
            with m.If(reason != Reason.DONE):
                m.next = "SETTLE"
            with m.Elif(step == config.members):
                m.d.sync += step.eq(0)
                m.next = "CHOOSE"
        with m.State("CHOOSE"):
            empty = free & ~held
            with m.If(own_found):
                m.d.sync += index.eq(own)
                m.next = "AGAIN"
            with m.Elif(confirms):
                # The confirmation of an entry that is gone, perhaps with its job: late, and nobody's first Join.
                refuse(Reason.TOKEN)
            with m.Elif(shut | shared | strange):
                refuse(Reason.MEMBER)
            with m.Elif(wanted != NO_MEMBER):
                m.d.sync += index.eq(Mux(other_found, other, wanted))
                m.next = "CREATE"
                with m.If((wanted >= config.members) | ~(free | yielding).bit_select(wanted, 1)):
                    refuse(Reason.MEMBER)
                if uplinks:
                    with m.Elif(other_found):
                        m.next = "OTHER"
            with m.Else():
                m.d.sync += index.eq(Mux(empty.any(), lowest(empty), lowest(yielding)))
                m.next = "CREATE"
                with m.If(~(empty | yielding).any()):
                    refuse(Reason.MEMBER)
        if uplinks:
            # Another entry has some of the ranks, and yields: it is cleared, and all are looked through again.
            with m.State("OTHER"):
                m.next = "YIELD"
            with m.State("YIELD"):
                m.d.comb += [t.member_write.eq(1), t.member_next.pending.eq(0), t.member_next.live.eq(0), t.job_write.eq(1),
                             t.job_next.live.eq(job.live & ~bit), t.job_next.ranks.eq(job.ranks & ~Mux(row.live, row.ranks, 0))]
                m.next = "JOIN"
        ranks = Signal(32)
        m.d.comb += ranks.eq(Mux(frame.members == 0, bit, frame.members))
        with m.State("CREATE"):
            with m.If(exists):
                m.next = "TOKEN"
            with m.Else():
                made = t.job_next
                m.d.comb += [
                    self.draw.eq(1), t.job_write.eq(1), t.job_founds.eq(1), made.state.eq(JobState.FORMING), made.epoch.eq(self.random[:16]),
                    made.first.eq(self.random[32:] & (2**32 - config.slots)), made.threshold.eq(asked.threshold), made.live.eq(0),
                ]
                if uplinks:
                    m.d.comb += [made.tree.eq(0), made.ranks.eq(0), made.up_member.eq(NO_MEMBER), made.up_token.eq(0), made.up_running.eq(0),
                                 made.up_reason.eq(Reason.DONE)]
                    m.d.sync += founds.eq(leaf)
                m.next = "CREATED"
        with m.State("CREATED"):
            m.next = "WRITTEN"
        with m.State("WRITTEN"):
            m.next = "CLEAR"
        with m.State("TOKEN"):
            entry = t.member_next
            m.d.comb += [
                self.draw.eq(1), t.member_write.eq(1), t.member_enters.eq(1), entry.pending.eq(1), entry.live.eq(0),
                entry.token.eq(self.random[32:] | 1), entry.number.eq(0), self.binding.valid.eq(1), t.heard_write.eq(bit), t.job_write.eq(1),
                t.job_next.live.eq(job.live & ~bit),
            ]
            m.d.sync += [self.member.eq(index), self.token.eq(self.random[32:] | 1)]
            m.next = "SETTLE"
            if uplinks:
                m.d.comb += [entry.ranks.eq(ranks), t.job_next.tree.eq(job.tree | (frame.members != 0)),
                             t.job_next.ranks.eq(job.ranks & ~Mux(row.live, row.ranks, 0))]
                with m.If(founds):
                    m.next = "FOUNDED"
        if uplinks:
            with m.State("FOUNDED"):
                m.next = "STORED"
            with m.State("STORED"):
                m.next = "NONCE"
            with m.State("NONCE"):
                # The parent is bound as members are, and told apart by the index behind theirs.
                bound = self.binding.payload
                m.d.comb += [self.draw.eq(1), t.job_write.eq(1), t.job_next.up_nonce.eq(self.random), self.binding.valid.eq(1),
                             bound.member.eq(config.members), bound.port.eq(self.parent.port), bound.address.mac.eq(self.parent.mac),
                             bound.address.ip.eq(self.parent.ip), bound.address.udp.eq(int.from_bytes(UDP_PORT.to_bytes(2, "big"), "little"))]
                m.next = "SETTLE"
        # What the rows are compared with, a cycle later.
        other_token, there, live = Signal(), Signal(), Signal.like(bit)
        m.d.comb += live.eq(job.live | bit)
        m.d.sync += [other_token.eq(confirms & (frame.token != row.token)), there.eq(popcount(live) == job.world)]
        if uplinks:
            m.d.sync += there.eq(~leaf & (popcount(job.ranks | row.ranks) == job.world))
        with m.State("AGAIN"):
            m.next = "FETCHED"
        with m.State("FETCHED"):
            m.next = "CONFIRM"
        with m.State("CONFIRM"):
            with m.If(other_token):
                refuse(Reason.TOKEN)
            with m.Elif(shut & confirms & row.pending):
                refuse(Reason.MEMBER)
            with m.Else():
                m.d.sync += [self.member.eq(index), self.token.eq(row.token)]
                m.d.comb += t.heard_write.eq(bit)
                m.next = "SETTLE"
                with m.If(confirms & row.pending):
                    m.d.comb += [t.member_write.eq(1), t.member_next.pending.eq(0), t.member_next.live.eq(1), t.job_write.eq(1)]
                    with m.If(job.state == JobState.FORMING):
                        m.d.comb += [t.job_next.live.eq(live), t.job_next.state.eq(Mux(there, JobState.RUNNING, JobState.FORMING))]
                        if uplinks:
                            m.d.comb += t.job_next.ranks.eq(job.ranks | row.ranks)
                    with m.Else():
                        m.d.comb += t.job_next.joining.eq(job.joining | bit)

    def _act(self, m, refuse, exists, same, action, index, step, bit, leaf, asks, passes):
        config = self.config
        uplinks = config.uplinks
        frame, asked, t = self.headers.frame, self.headers.body, self.tables
        job, row = t.job_row, t.member_row
        leaves = action == Action.LEAVE
        remaining = Signal.like(bit)
        m.d.comb += remaining.eq(job.live & ~bit)
        slot, closed = t.slot_row, self.closed
        # What the rows are compared with, a cycle later.
        ahead, number_same, token_same, token_set, key_same, epoch_same, sender_same, gone = (
            Signal(32 if name == "ahead" else 1, name=name) for name in (
                "ahead", "number_same", "token_same", "token_set", "key_same", "epoch_same", "sender_same", "gone"))
        alone, told, in_tree, outsider, anybody, everybody, too_many = (Signal(name=name) for name in (
            "alone", "told", "in_tree", "outsider", "anybody", "everybody", "too_many"))
        m.d.sync += [
            ahead.eq(frame.seq - row.number), number_same.eq(frame.seq == row.number), token_same.eq(frame.token == row.token),
            token_set.eq(row.token != 0), key_same.eq(asked.key == job.key), epoch_same.eq(frame.epoch == job.epoch), sender_same.eq(same),
            gone.eq(~exists), alone.eq((remaining & ~job.newcomers) == 0), told.eq(job.up_token != 0 if uplinks else 0),
            in_tree.eq((leaf | (exists & job.tree)) if uplinks else 0), outsider.eq(frame.member >= config.members),
            anybody.eq(frame.member == NO_MEMBER), everybody.eq(asked.threshold == job.world),
            too_many.eq((asked.threshold == 0) | (asked.threshold > job.world)),
        ]
        with m.State("POINT"):
            m.next = "COMPARE"
        with m.State("COMPARE"):
            m.next = "ACT"
            with m.If(self.evicts):
                m.next = "PART"
        with m.State("ACT"):
            with m.If((action == Action.SET_H) & in_tree & ~everybody):
                refuse(Reason.THRESHOLD)
            with m.Elif((action == Action.HALT) & in_tree | (action == Action.FBCAST) & leaf
                        | (action == Action.RESET) & ~anybody & leaf):
                refuse(Reason.ACTION)
            with m.Elif(gone):
                refuse(Reason.JOB)
            with m.Elif((action == Action.RESET) & anybody):
                with m.If(~key_same):
                    refuse(Reason.KEY)
                with m.Else():
                    m.next = "END"
            with m.Elif(leaves & ~outsider & ~row.live & ~row.pending & token_set & token_same):
                m.next = "SETTLE"
            with m.Elif(outsider | ~row.live):
                refuse(Reason.MEMBER)
            with m.Elif(~token_same):
                refuse(Reason.TOKEN)
            with m.Elif(~sender_same):
                refuse(Reason.MEMBER)
            with m.Elif(number_same):
                m.next = "SETTLE"
            with m.Elif(ahead[31]):
                refuse(Reason.NUMBER)
            with m.Elif((action == Action.RESET) & ~epoch_same):
                refuse(Reason.EPOCH)
            with m.Elif((action == Action.SET_H) & too_many):
                refuse(Reason.THRESHOLD)
            with m.Elif(leaves):
                m.next = "PART"
            with m.Elif(action == Action.FBCAST):
                m.d.sync += step.eq(asked.segment & (config.slots - 1))
                m.next = "AIM"
            with m.Else():
                m.d.comb += [t.member_write.eq(1), t.member_next.number.eq(frame.seq), t.job_write.eq(1)]
                with m.Switch(action):
                    with m.Case(Action.SET_H):
                        m.d.comb += t.job_next.threshold.eq(asked.threshold)
                        m.next = "SETTLE"
                    with m.Case(Action.HALT):
                        with m.If(job.state != JobState.FORMING):
                            m.d.comb += t.job_next.state.eq(Mux(asked.mode != 0, JobState.HALTED, JobState.RUNNING))
                        m.next = "SETTLE"
                    with m.Default():
                        m.d.comb += [t.job_next.epoch.eq(job.epoch + 1), t.job_next.newcomers.eq(0)]
                        m.next = "CLEAR"
        with m.State("PART"):
            m.d.comb += [t.member_write.eq(1), t.member_next.live.eq(0), t.job_write.eq(1), t.job_next.live.eq(remaining),
                         t.job_next.joining.eq(job.joining & ~bit), t.claims_write.eq(1)]
            m.next = "SWEEP"
            if uplinks:
                m.d.comb += t.job_next.ranks.eq(job.ranks & ~row.ranks)
                m.next = "ROWS"
            # Newcomers have nothing yet of what the others knew.
            with m.If(alone):
                m.next = "END"
                if uplinks:
                    # Nobody is left to repeat a leaf's own Leave: the last member's stays unanswered until the parent has answered.
                    with m.If(leaf & told):
                        m.d.comb += [t.member_write.eq(0), t.job_write.eq(0)]
                        m.d.sync += [asks.eq(1), self.leaves.eq(1), passes.eq(1)]
                        m.next = "SETTLE"
        if uplinks:
            with m.State("ROWS"):
                m.next = "DISTANCES"
            with m.State("DISTANCES"):
                m.next = "LEAST"
            with m.State("LEAST"):
                m.next = "LOWEST"
            with m.State("LOWEST"):
                # What the worst of the others lacks comes with the first slot.
                m.next = "SWEEP"
        # Of a slot that is forced, all that goes out is registered with `forces`.
        collecting, passed, remains = slot.state == SlotState.COLLECTING, Signal(), Signal(slot_row(config))
        enough = has_enough(slot.whole, popcount(slot.members), job.threshold, 0)
        m.d.comb += [remains.eq(slot), remains.expected.eq(slot.expected & ~bit)]

        def close(row, state):
            m.d.sync += [closed.eq(row), closed.state.eq(state), closed.change.eq(slot.change | slot.boundary & job.joining.any())]

        with m.State("AIM"):
            m.next = "TARGET"
        with m.State("TARGET"):
            here = slot.seq == asked.segment
            m.d.sync += [self.forces.eq(here & collecting & ~slot.whole), passed.eq(here & (slot.state == SlotState.COMPLETE))]
            close(slot, SlotState.COMPLETE)
            m.next = "FORCE"
        with m.State("FORCE"):
            with m.If(~self.forces & ~passed):
                refuse(Reason.SEQ)
            with m.Elif(~self.forces | self.forced):
                m.d.comb += [t.slot_write.eq(self.forces), t.slot_next.eq(closed), t.member_write.eq(1), t.member_next.number.eq(frame.seq)]
                m.d.sync += self.forces.eq(0)
                m.next = "SETTLE"
        with m.State("END"):
            m.d.comb += [t.job_write.eq(1), *empty(t.job_next, SETTINGS)]
            m.d.sync += index.eq(0)
            m.next = "FORGET"
        with m.State("SWEEP"):
            # The row of the slot pointed at comes with the next state.
            m.next = "WEIGH"
        with m.State("WEIGH"):
            m.d.sync += self.forces.eq(collecting & is_complete(remains, enough))
            close(remains, Mux(leaf, SlotState.SENT_UP, SlotState.COMPLETE))
            m.next = "RELEASE"
        with m.State("RELEASE"):
            m.d.comb += t.slot_next.eq(Mux(self.forces, closed.as_value(), remains.as_value()))
            with m.If(~self.forces | self.forced):
                m.d.comb += t.slot_write.eq(collecting)
                m.d.sync += [self.forces.eq(0), step.eq(step + 1)]
                m.next = "SWEEP"
                with m.If(step == config.slots - 1):
                    m.next = "SETTLE"
