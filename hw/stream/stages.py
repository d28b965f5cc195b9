"""The registers of a pipeline that never stalls."""

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import ShapeLike, Signal, Value, ValueLike
from amaranth.lib import data

__all__ = ["Stages", "delayed", "once", "record"]


def once(m: Any, name: str, value: ValueLike) -> Signal:
    """Return a signal with this value, for a value that is used more than once.

    Amaranth writes an expression out at every use.
    """
    value = Value.cast(value)
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def delayed(m: Any, name: str, value: ValueLike) -> Signal:
    """Return a signal with what this value was a cycle ago. It is not reset."""
    signal = Signal(value.shape(), name=name, reset_less=True)
    m.d.sync += signal.eq(value)
    return signal


def record(name: str, **fields: ShapeLike) -> type[data.Struct]:
    """Return a record for `Stages` whose fields depend on a component's parameters."""
    return type(data.Struct)(name, (data.Struct,), {"__annotations__": fields})


class Stages:
    """Puts registers between the steps of a free-running pipeline, one record a step.

    A component lists its records, each named by what has become true, in a tuple. The tuple's length is the latency in
    cycles, so that no latency is typed. `then` registers the next record; a field without a value keeps that of the
    record before. The registers are not reset: a component that must know which of them are valid carries a strobe of
    its own, which is reset, beside the records. A strobe as `when` stops what need not be computed.

    Every field is a signal of its own, because records of one wide signal make compiled simulations slow.

    Parameters
    ----------
    m : Module
        The module that gets the registers.
    records : tuple of Struct types
        The records, in the order of the steps.
    """

    def __init__(self, m: Any, records: tuple[type[data.Struct], ...]):
        self._m = m
        self._records = list(records)
        self._last = SimpleNamespace()

    def then(self, record: type[data.Struct], *, when: ValueLike = 1, **fields: ValueLike) -> SimpleNamespace:
        """Return signals that hold, one cycle later, what `fields` are now.

        Unless `when` is 1 the given fields keep what they hold. The others load in every cycle, because synthesis makes
        a shift register of a field that is only delayed.

        Raises
        ------
        ValueError
            If the record is out of turn, a field is unknown or nowhere to be had, or a value is wider than its field.
        """
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
            if len(source) > len(Value.cast(register)):
                raise ValueError(
                    f"Stages record {record.__name__} has {len(Value.cast(register))} bits for {name}, not "
                    f"{len(source)}"
                )
            with self._m.If(when if name in fields else 1):
                self._m.d.sync += register.eq(source)
            setattr(this, name, register)
        self._last = this
        return this
