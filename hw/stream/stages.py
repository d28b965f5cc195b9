"""The registers of a pipeline that never stalls."""

from types import SimpleNamespace

from amaranth.hdl import Signal, Value
from amaranth.lib import data

__all__ = ["Stages", "once"]


def once(m, name: str, value) -> Signal:
    """The value as a signal, for what is used more than once: Amaranth writes an expression out at every use."""
    value = Value.cast(value)
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


class Stages:
    """Puts registers between the steps of a free-running pipeline, one record per step.

    A component lists its records, each named by what has become true, in a tuple; the tuple's length is its latency in
    cycles, so that nobody types one. `then` registers the next of them. A field that is not given moves on from the
    record before. An unknown field, a field that is nowhere to be had, a value wider than its field and a record out
    of turn raise.

    Every field is a signal of its own: records of one wide signal make compiled simulations slow. Nothing is reset; a
    strobe that must not appear out of the dark begins at 0 at power-up and follows its source.
    """

    def __init__(self, m, records: tuple[type[data.Struct], ...]):
        self._m = m
        self._records = list(records)
        self._last = SimpleNamespace()

    def then(self, record: type[data.Struct], **fields) -> SimpleNamespace:
        """Signals that hold, one cycle later, what `fields` are now."""
        if not self._records or self._records.pop(0) is not record:
            raise ValueError(f"Stages record {record.__name__} is out of turn")
        members = data.Layout.cast(record).members
        if unknown := fields.keys() - members.keys():
            raise ValueError(f"Stages record {record.__name__} has no fields {sorted(unknown)}")
        if missing := members.keys() - fields.keys() - vars(self._last).keys():
            raise ValueError(f"Stages record {record.__name__} lacks fields {sorted(missing)}")
        this = SimpleNamespace()
        for name, shape in members.items():
            register = Signal(shape, name=f"{record.__name__.lower()}__{name}", reset_less=True)
            source = Value.cast(fields.get(name, getattr(self._last, name, None)))
            if len(source) > len(register):
                raise ValueError(
                    f"Stages record {record.__name__} has {len(register)} bits for {name}, not {len(source)}"
                )
            self._m.d.sync += register.eq(source)
            setattr(this, name, register)
        self._last = this
        return this
