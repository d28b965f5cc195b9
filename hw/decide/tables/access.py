"""The port of the switch's tables: pointers and writes in, rows out."""

from collections.abc import Iterable, Mapping

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.rows import (
    RING_FIELDS,
    ROSTER_FIELDS,
    SENDER_FIELDS,
    SEQ_BITS,
    SETTINGS_FIELDS,
    TICK_BITS,
    claims_row,
    job_row,
    member_row,
    slot_row,
)
from iswitch.config import Config

__all__ = [
    "BY_MEMBER",
    "Access",
    "connect_data",
    "connect_rows",
    "connect_writes",
    "record_of",
    "records",
    "write_back",
]

BY_MEMBER = ("acknowledged", "admitted_seq", "heard")
"""Values that a row has for each member of a job; a write selects members."""


def fields_of(row: data.StructLayout, *, only: Iterable[str] = (), without: Iterable[str] = ()) -> data.StructLayout:
    """Return the layout of some fields of a row: `only` these, or all `without` those."""
    names = [name for name in row.members if (name in only if only else name not in without)]
    return data.StructLayout({name: row.members[name] for name in names})


def records(config: Config) -> dict[str, data.StructLayout]:
    """Return the layouts of the records. A write replaces a full record.

    A row of the jobs is `settings` (the creator's settings), `status`, `ring` and `roster` (the job's members). A row
    of the members is `sender` (the entry's owner) and `entry`.
    """
    job, member = job_row(config), member_row(config)
    return {
        "settings": fields_of(job, only=SETTINGS_FIELDS),
        "status": fields_of(job, without=SETTINGS_FIELDS + ROSTER_FIELDS + RING_FIELDS),
        "ring": fields_of(job, only=RING_FIELDS),
        "roster": fields_of(job, only=ROSTER_FIELDS),
        "sender": fields_of(member, only=SENDER_FIELDS),
        "entry": fields_of(member, without=SENDER_FIELDS),
        "slot": slot_row(config),
        "claims": claims_row(config),
    }


class Access(wiring.Signature):
    """One user's view of the tables.

    The user points with `job`, `member` (an index in that job) and `slot` (a number from `slot_number`). The rows
    follow one cycle later. In the cycle of `<record>_write` the record pointed at becomes `<record>_next`.
    `acknowledged_write`, `admitted_seq_write` and `heard_write` are sets of members of the job: the seq from which on
    such a member lacks results becomes `acknowledged_next` or `admitted_seq_next`, the tick at which the switch last
    heard from it becomes the present one.

    Parameters
    ----------
    config : Config
        What the switch is built for.
    writes : mapping of str to tuple of str, or iterable of str
        The records that the user writes, and of each the fields that it changes; without a mapping, all of them.
    overwrites : iterable of str
        Further records that the user writes, with any value.

    Raises
    ------
    ValueError
        If a record has no such field.
    """

    def __init__(
        self,
        config: Config,
        *,
        writes: Mapping[str, tuple[str, ...]] | Iterable[str] = (),
        overwrites: Iterable[str] = (),
    ):
        layouts = records(config)
        written = {f"{name}_write": Out(config.members if name in BY_MEMBER else 1) for name in overwrites}
        for name in writes:
            written[f"{name}_write"] = Out(config.members if name in BY_MEMBER else 1)
            if name in BY_MEMBER:
                if name != "heard":
                    written[f"{name}_next"] = Out(SEQ_BITS)
                continue
            layout, only = layouts[name], writes[name] if isinstance(writes, Mapping) else ()
            if unknown := set(only) - set(layout.members):
                raise ValueError(f"Access writes must name fields of {name}, not {sorted(unknown)}")
            written[f"{name}_next"] = Out(fields_of(layout, only=only))
        super().__init__(
            {
                "job": Out(range(config.jobs)),
                "member": Out(range(config.members)),
                "slot": Out(range(config.jobs * config.slots)),
                **written,
                "job_row": In(job_row(config)),
                "member_row": In(member_row(config)),
                "slot_row": In(slot_row(config)),
                "claims_row": In(claims_row(config)),
                "acknowledged": In(data.ArrayLayout(SEQ_BITS, config.members)),
                "heard": In(data.ArrayLayout(TICK_BITS, config.members)),
            }
        )


def record_of(tables, record: str):
    """Return the record as the row read from `tables` has it, a dictionary of its fields."""
    row = {"entry": "member", "sender": "member", "slot": "slot", "claims": "claims"}.get(record, "job")
    return {name: getattr(tables, f"{row}_row")[name] for name in getattr(tables, f"{record}_next").shape().members}


def write_back(tables, *names: str):
    """Return statements that leave these records as they are where they are written; later ones change single
    fields."""
    return [
        getattr(tables, f"{record}_next")[name].eq(value)
        for record in names
        for name, value in record_of(tables, record).items()
    ]


def connect_writes(m, tables, user):
    """Connect a user's pointers and writes to the port `tables`, in the state in which the user has it.

    A field that the user does not change keeps what the port assigns to it otherwise.
    """
    for name, member in user.signature.members.items():
        if member.flow is Out:
            m.d.comb += assign(getattr(tables, name), getattr(user, name))


def connect_data(m, tables, user, without: Iterable[str]):
    """Connect what a user writes at all times, which needs no multiplexer if no other user writes that record."""
    for name, member in user.signature.members.items():
        if member.flow is Out and name.endswith("_next") and name.removesuffix("_next") not in without:
            m.d.comb += assign(getattr(tables, name), getattr(user, name))


def assign(port, value):
    """Return statements that assign a value, of a record the fields that it has."""
    if isinstance(value, data.View):
        return [port[field].eq(value[field]) for field in value.shape().members]
    return [port.eq(value)]


def connect_rows(m, tables, user):
    """Show a user the rows of the port `tables`."""
    for name, member in user.signature.members.items():
        if member.flow is In:
            m.d.comb += getattr(user, name).eq(getattr(tables, name))
