"""The switch: its components, and how they are connected."""

from amaranth.hdl import Cat, Const, DomainRenamer, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.aggregate.accumulator import LOOP
from hw.aggregate.aggregator import Aggregator
from hw.bridge.responder import Responder
from hw.decide.core import Core, Trace
from hw.decide.counters import Counters
from hw.decide.gate import Gate
from hw.decide.verdict_buffer import VerdictBuffer
from hw.egress.link_gate import LinkGate
from hw.egress.output_port import OutputPort
from hw.egress.queue_age import TICK_BIT
from hw.egress.reply_composer import ReplyComposer
from hw.egress.stamp import Stamp
from hw.egress.waiting_results import WaitingResults
from hw.ingress.arbiter import Arbiter
from hw.ingress.packet_queue import PacketQueue
from hw.ingress.parser import Parser
from hw.interface.address import BINDINGS_BITS, Parent
from hw.interface.expense import expense_max
from hw.interface.headers import Arrival
from hw.interface.reply import ReplyRoute
from hw.replay.engine import Engine
from hw.stream.arbiter import PacketArbiter
from hw.stream.packet import Packet, first_of
from hw.stream.skid_buffer import SkidBuffer
from iswitch.config import Config
from iswitch.wire import PortCounter, Stat

__all__ = ["Switch", "gated_parts"]

REPLAY_STATS = (Stat.REPLAY_DROPPED, Stat.SATURATED, Stat.MEMORY_ERRORS, Stat.CORRUPT_PRIORITIES, Stat.CORRUPT_REPLAY)
"""Counters of the replay service's events."""


def gated_parts(config: Config) -> list[str]:
    """Return the submodules that a simulator need not compute while they are idle."""
    return ["core", "waiting_results", "aggregator", *(f"output_{port}" for port in range(config.ports))]


class Switch(wiring.Component):
    """The datapath of the switch, between N ports that carry frames without their FCS.

        rx -> PacketQueue -> Arbiter -> Parser -+-> headers -> Core (decides) -+
                                                +-> words that wait -----------+-> Gate
        Gate -+-> WaitingResults -> Aggregator -> results ----+
              +-> Responder -> forwarded ---------------------+-> OutputPort -> LinkGate -> tx
              +-> Engine ---------+-> replies -> Stamp -------+
        Core -> ReplyComposer ----+

    Store-and-forward at the entry, cut-through from there on. All ports share one pipeline, which takes one bus word
    per cycle.

    Only a full memory stalls `rx`. A MAC that cannot wait ends the frame that it had to truncate with `error` and
    `count` 0. Behind the gate only the aggregator stalls, for a bounded time: until the FIFO of sums has room, or while
    it makes a result that has waited. A full output queue drops replies and ordinary frames and counts them. It refuses
    results, which then wait in their slots.

    Parameters
    ----------
    config : Config
        The switch.
    gated : bool
        For simulators: each of `gated_parts` is in a clock domain of its own name. All these clocks are `clk`, but the
        clock of an idle part may stop (`active`).

    Members
    -------
    rx, tx : streams of Packet
        Frames that each port receives and sends.
    now_us : 32, in
        Time in microseconds, modulo 2^32: the time of deadlines, of silence and of MAC aging.
    link : 1 for each port, in
        The port's cable connects it to a station. Otherwise the switch removes its stations and empties its queues, and
        its MAC must take what it is offered. An input without a driver is 1.
    seed : 64, in
        Source of tokens and epochs, read at the first Join.
    operator_key : 64, in
        A key that ends any job; 0 for none. Constant.
    own_mac, own_ip : in
        Addresses of the switch, in wire order, first byte lowest.
    parents : Parent for each job, in
        The parent of the job, if this switch is a leaf of a tree.
    busy : 1, out
        A frame or an operation is inside.
    dropped : 1, out
        A port has lost a frame, because it was damaged or had no room.
    traced, trace : out
        For simulations: a frame is decided, and how.
    active : 1 for each of `gated_parts`, out, if `gated`
        An operation is inside the part or enters it. In the fourth cycle after `active` the part has come to rest: its
        clock may stop until `active`, `now_us` or `link` changes. In a reset all clocks run.
    memory : Axi4, out
        Memory of the replay service, if the switch has one. A reset of the switch must also reset what is behind this
        bus. Otherwise data that was requested before the reset would answer the first requests after it, and an
        interrupted burst would never end.
    """

    def __init__(self, config: Config, *, gated: bool = False):
        self.config, self.gated = config, gated
        self.engine = Engine(config) if config.replay else None
        word = stream.Signature(Packet(config.bus_bits))
        super().__init__(
            {
                "rx": In(word).array(config.ports),
                "tx": Out(word).array(config.ports),
                "now_us": In(32),
                "link": In(config.ports, init=(1 << config.ports) - 1),
                "seed": In(64),
                "operator_key": In(64),
                "own_mac": In(48),
                "own_ip": In(32),
                "parents": In(Parent).array(config.jobs),
                "busy": Out(1),
                "dropped": Out(1),
                "traced": Out(1),
                "trace": Out(Trace),
                **({"active": Out(data.StructLayout(dict.fromkeys(gated_parts(config), 1)))} if gated else {}),
                **({"memory": Out(self.engine.memory.signature)} if self.engine else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.arbiter = arbiter = Arbiter(
            ports=config.ports, bus_bits=config.bus_bits, cycles_max=expense_max(config), turn_words=LOOP
        )
        m.submodules.pipeline = pipeline = SkidBuffer(Packet(config.bus_bits, meta=Arrival, parity=True))
        m.submodules.parser = parser = Parser(bus_bits=config.bus_bits)
        m.submodules.core = core = self._gated("core", Core(config))
        m.submodules.verdicts = verdicts = VerdictBuffer(config)
        m.submodules.gate = gate = Gate(config)
        m.submodules.responder = responder = Responder(config)
        m.submodules.waiting_results = waiting_results = self._gated("waiting_results", WaitingResults(config))
        m.submodules.aggregator = aggregator = self._gated("aggregator", Aggregator(config))
        m.submodules.composer = composer = ReplyComposer(bus_bits=config.bus_bits)
        m.submodules.replies = replies = PacketArbiter(
            Packet(config.bus_bits, meta=ReplyRoute), inputs=2 if self.engine else 1, round_robin=False
        )
        m.submodules.stamp = stamp = Stamp(bus_bits=config.bus_bits)
        m.submodules.counters = counters = Counters(config)

        age_tick, age_ticks = self.now_us[TICK_BIT:], Signal(32 - TICK_BIT)
        m.d.sync += age_ticks.eq(age_tick)
        queues, outputs, gates = [], [], []
        for port in range(config.ports):
            m.submodules[f"queue_{port}"] = queue = PacketQueue(
                bus_bits=config.bus_bits,
                depth=config.queue_words,
                frame_bytes_max=config.frame_bytes_max,
                uplinks=config.uplinks,
                half_width=config.half_width,
            )
            name = f"output_{port}"
            m.submodules[name] = output = self._gated(name, OutputPort(config, port=port))
            connect(m, flipped(self.rx[port]), queue.i)
            connect(m, queue.o, arbiter.frames[port])
            connect(m, queue.scans, arbiter.scans[port])
            m.submodules[f"gate_{port}"] = link_gate = LinkGate(bus_bits=config.bus_bits)
            connect(m, output.tx, link_gate.i)
            connect(m, link_gate.o, flipped(self.tx[port]))
            m.d.comb += [
                link_gate.aged.eq(output.aged),
                link_gate.link.eq(self.link[port]),
                output.tick.eq(age_tick != age_ticks),
            ]
            gates.append(link_gate)
            queues.append(queue)
            outputs.append(output)

        connect(m, arbiter.o, pipeline.i)
        connect(m, pipeline.o, parser.i)
        # No frame is decided before the counters are wiped and the rows of waiting results are erased.
        starts = counters.wiped & waiting_results.erased
        m.d.comb += [
            core.headers.payload.eq(parser.headers.payload),
            core.headers.valid.eq(parser.headers.valid & starts),
            parser.headers.ready.eq(core.headers.ready & starts),
        ]
        connect(m, core.verdicts, verdicts.i)
        # A result goes to those to whom its members were bound when it was decided, not when it leaves.
        bindings = Signal(BINDINGS_BITS)
        m.d.sync += bindings.eq(bindings + core.bind.valid)
        m.d.comb += verdicts.i.payload.work.bindings.eq(bindings)
        m.d.comb += [
            gate.verdicts.payload.eq(verdicts.verdict),
            gate.verdicts.valid.eq(verdicts.valid),
            verdicts.ready.eq(gate.verdicts.ready),
            verdicts.handed.eq(gate.works.valid & gate.works.ready),
        ]
        connect(m, parser.o, gate.words)
        m.d.comb += gate.payload_only.eq(parser.payload_only)
        connect(m, gate.forwarded, responder.i)
        connect(m, gate.works, waiting_results.works)
        connect(m, waiting_results.operations, aggregator.works)
        connect(m, gate.contributions, aggregator.contributions)
        connect(m, core.replies, composer.replies)
        connect(m, composer.o, replies.i[0])
        connect(m, replies.o, stamp.i)
        m.d.comb += [
            parser.own_ip.eq(self.own_ip),
            arbiter.expense.eq(core.expense),
            core.now_us.eq(self.now_us),
            core.link.eq(self.link),
            core.seed.eq(self.seed),
            core.operator_key.eq(self.operator_key),
            core.own_mac.eq(self.own_mac),
            core.own_ip.eq(self.own_ip),
            responder.own_mac.eq(self.own_mac),
            responder.own_ip.eq(self.own_ip),
            responder.reply.eq(verdicts.verdict.host_reply),
            counters.address.eq(core.read_address),
            core.read_value.eq(counters.value),
            counters.decided.eq(core.decided),
            counters.outcome.eq(core.trace.outcome),
            counters.claimed.eq(core.claimed),
            counters.age.eq(core.age),
            counters.flushed.eq(aggregator.flushed),
            counters.stats[Stat.CORRUPT_SUMS].eq(aggregator.corrupted),
            self.traced.eq(core.decided),
            self.trace.eq(core.trace),
            stamp.own_mac.eq(self.own_mac),
            stamp.own_ip.eq(self.own_ip),
        ]
        for job in range(config.jobs):
            m.d.comb += core.parents[job].eq(self.parents[job])
        for stat in Stat:
            if stat not in (*REPLAY_STATS, Stat.CORRUPT_SUMS):
                m.d.comb += counters.stats[stat].eq(core.stats[stat])

        result = aggregator.results.payload
        m.d.comb += [
            waiting_results.frames_waiting.eq(pipeline.o.valid | parser.o.valid | verdicts.valid),
            waiting_results.aggregating.eq(aggregator.operates),
            waiting_results.begins.eq(aggregator.results.valid & result.first),
            waiting_results.ends.eq(aggregator.results.valid & result.last),
            waiting_results.header.eq(result.meta.header),
        ]
        for port, output in enumerate(outputs):
            m.d.comb += [
                waiting_results.refused[port].eq(output.refused),
                waiting_results.has_room[port].eq(output.has_room),
                *(waiting_results.local[port][job].eq(output.local[job]) for job in range(config.jobs)),
                output.held_back.eq(waiting_results.held_back[port]),
                output.repeated.eq(waiting_results.repeated),
                output.decided.eq(waiting_results.decided),
            ]

        engine_busy = self._replay(m, gate, replies, counters)
        for queue, output, link_gate, events, waits, expires in zip(
            queues, outputs, gates, counters.port_events, waiting_results.waits, waiting_results.expired, strict=True
        ):
            # Of two results that expire in one cycle, one is counted in a later cycle.
            owed = Signal()
            m.d.sync += owed.eq(Mux(owed, output.stat_expired | expires, output.stat_expired & expires))
            m.d.comb += [
                output.own_mac.eq(self.own_mac),
                output.own_ip.eq(self.own_ip),
                output.results.valid.eq(aggregator.results.valid),
                output.results.payload.eq(aggregator.results.payload),
                output.replies.valid.eq(stamp.o.valid),
                output.replies.payload.eq(stamp.o.payload),
                output.forwarded.valid.eq(responder.o.valid),
                output.forwarded.payload.eq(responder.o.payload),
                output.bind.valid.eq(core.bind.valid),
                output.bind.payload.eq(core.bind.payload),
                output.bindings.eq(bindings),
                events[PortCounter.RX_ERROR].eq(queue.stat_error),
                events[PortCounter.RX_OVERFLOW].eq(queue.stat_overflow),
                events[PortCounter.RX_RUNT].eq(queue.stat_runt),
                events[PortCounter.RX_OVERSIZE].eq(queue.stat_oversize),
                events[PortCounter.RX_FRAMES].eq(queue.stat_frame),
                events[PortCounter.TX_DROP_GRANT].eq(output.stat_drop_grant),
                events[PortCounter.TX_DROP_REPLY].eq(output.stat_drop_reply),
                events[PortCounter.TX_DROP_ORDINARY].eq(output.stat_drop_ordinary),
                events[PortCounter.TX_FRAMES].eq(link_gate.stat_frame),
                events[PortCounter.TX_AGED].eq(link_gate.stat_aged),
                events[PortCounter.TX_LINK_DOWN].eq(link_gate.stat_link_down),
                events[PortCounter.TX_WAIT_RESULT].eq(waits),
                events[PortCounter.TX_EXPIRED_RESULT].eq(output.stat_expired | expires | owed),
            ]
        lost = (
            PortCounter.RX_ERROR,
            PortCounter.RX_OVERFLOW,
            PortCounter.RX_RUNT,
            PortCounter.RX_OVERSIZE,
            PortCounter.TX_DROP_GRANT,
            PortCounter.TX_DROP_REPLY,
            PortCounter.TX_DROP_ORDINARY,
            PortCounter.TX_AGED,
        )
        has_lost = Signal(config.ports)
        m.d.sync += [
            has_lost.eq(Cat(Cat(events[counter] for counter in lost).any() for events in counters.port_events)),
            self.dropped.eq(has_lost.any()),
        ]
        m.d.comb += self.busy.eq(
            Cat(
                *(
                    part.busy
                    for part in (
                        *queues,
                        *outputs,
                        parser,
                        core,
                        responder,
                        waiting_results,
                        aggregator,
                        composer,
                        stamp,
                    )
                )
            ).any()
            | pipeline.o.valid
            | verdicts.valid
            | replies.o.valid
            | engine_busy
        )
        if self.gated:
            m.d.comb += [
                self.active.core.eq(core.busy | core.headers.valid),
                self.active.waiting_results.eq(
                    waiting_results.busy | waiting_results.works.valid | waiting_results.begins
                ),
                self.active.aggregator.eq(aggregator.busy | aggregator.works.valid | aggregator.contributions.valid),
            ]
            for port, output in enumerate(outputs):
                inputs = (output.results, output.replies, output.forwarded, output.bind)
                m.d.comb += self.active[f"output_{port}"].eq(
                    output.busy | output.tick | Cat(packets.valid for packets in inputs).any()
                )
        return m

    def _gated(self, name: str, part: wiring.Component):
        """Return a part in the clock domain of its name, if clocks may stop."""
        return DomainRenamer(name)(part) if self.gated else part

    def _replay(self, m, gate, replies, counters):
        """Connect the replay service, if the switch has one. Return whether it is busy."""
        engine = self.engine
        if engine is None:
            return Const(0)
        m.submodules.engine = engine
        connect(m, gate.requests, engine.words)
        connect(m, engine.o, replies.i[1])
        connect(m, engine.memory, flipped(self.memory))
        m.d.comb += [
            engine.first.eq(first_of(m, gate.requests)),
            engine.arrived.eq(gate.arrived),
            engine.now_us.eq(self.now_us),
            counters.replay_concluded.eq(engine.concluded),
            counters.replay_outcome.eq(engine.outcome),
            counters.stats[Stat.REPLAY_DROPPED].eq(engine.stat_drop),
            counters.stats[Stat.SATURATED].eq(engine.saturated),
            counters.stats[Stat.MEMORY_ERRORS].eq(engine.memory_error),
            counters.stats[Stat.CORRUPT_PRIORITIES].eq(engine.corrupted),
            counters.stats[Stat.CORRUPT_REPLAY].eq(engine.corrupted_state),
        ]
        return engine.busy
