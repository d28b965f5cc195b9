"""What the states share in which membership is changed."""

from amaranth.hdl import Const, Mux, Signal
from amaranth.lib import data

from hw.decide.rules.sender import same_sender
from iswitch.config import Config
from iswitch.wire import REGISTERS_PER_READ, Action, JobState, Reason, Type

__all__ = ["Context"]


class Context:
    """Of a Membership with these `ports`: the frame, the rows that the tables' pointers show, and the registers that
    many states use.

    A state belongs to the module that adds it. `ENTRY` and `SETTLE` are where every way begins and ends. Rows come one
    cycle after they are pointed at, and show what was written two cycles later. What the headers alone say is in
    registers: they are there two cycles before anything is asked.
    """

    def __init__(self, m, ports):
        config: Config = ports.config
        self.config, self.ports, self.tables = config, ports, ports.tables
        self.frame, self.asked, self.job, self.row = (
            ports.headers.frame,
            ports.headers.body,
            ports.tables.job_row,
            ports.tables.member_row,
        )
        self.leaf = ports.leaf if config.uplinks else Const(0)

        self.reason = Signal(Reason)
        self.index = Signal(range(config.members + 1))
        """The entry of a member."""
        self.step = Signal(range(max(config.slots, config.members, REGISTERS_PER_READ) + 2))
        """Where a walk through slots, entries or registers is."""
        self.address, self.registers = Signal(32), Signal(data.ArrayLayout(32, REGISTERS_PER_READ))
        """Of a Read."""
        self.asks, self.passes = Signal(), Signal()
        """Something is to go to the parent; nothing to whom the frame is from."""

        # Of the headers alone
        numbered, kind = Signal(), self.frame.version_type[:4]
        self.action = Signal(Action, reset_less=True)
        """0 if it is none that there is."""
        self.confirms = Signal()
        """The frame has a token: of a Join, that it is not the first."""
        self.answers = Signal() if config.uplinks else Const(1)
        """The frame is a control message, and none from the parent."""
        m.d.sync += [
            numbered.eq(self.frame.job < config.jobs),
            self.action.eq(Mux(self.asked.action > max(Action), 0, self.asked.action)),
            self.confirms.eq(self.frame.token != 0),
        ]
        if config.uplinks:
            m.d.sync += self.answers.eq(kind == Type.CONTROL)

        # Of the rows
        port_same, address_same = same_sender(ports.headers, self.row)
        self.same = port_same & address_same
        """The member is whom the frame is from."""
        self.exists = numbered & (self.job.state != JobState.NONE)
        self.bit = Signal(config.members)
        """Of the entry, in sets of members."""
        self.shut = Signal()
        """Nobody joins a tree that runs."""
        m.d.comb += self.bit.eq(1 << self.index)
        if config.uplinks:
            m.d.sync += self.shut.eq(self.exists & (self.job.tree | self.leaf) & (self.job.state != JobState.FORMING))

    def refuse(self, m, why: Reason):
        """The way on of a state that finds a reason against what is asked."""
        m.d.sync += self.reason.eq(why)
        m.next = "SETTLE"
