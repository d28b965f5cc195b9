"""Attributes that a topology may give to switches, hosts and cables, as pydantic models.

The same models check YAML, node-link JSON, GraphML and graphs made by programs.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

__all__ = [
    "CableRecord",
    "Flag",
    "Gbps",
    "HostRecord",
    "Number",
    "PositiveWhole",
    "Record",
    "ReservedGbps",
    "Role",
    "Scalar",
    "SwitchRecord",
    "Text",
    "Whole",
    "as_written",
    "must_be",
    "numbered_ports",
    "plain_value",
]


class Scalar(NamedTuple):
    """A scalar of a text file: ``name: 1e3`` is a name as it is written, ``nic_gbps: 1e3`` is a number."""

    value: Any
    written: str


def plain_value(given: Any) -> Any:
    """Return the value of a scalar of a file; any other value as it is."""
    return given.value if isinstance(given, Scalar) else given


def _whole(given: Any) -> Any:
    """Turn 64.0 into 64, since JSON, GraphML and ``1e8`` have no other whole numbers."""
    value = plain_value(given)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_written(given: Any) -> Any:
    """Return a scalar of a file as it is written, unless it is null; any other value as it is."""
    return given.written if isinstance(given, Scalar) and given.value is not None else given


Text = Annotated[str, BeforeValidator(as_written)]
Flag = Annotated[bool, BeforeValidator(plain_value)]
Number = Annotated[float, BeforeValidator(plain_value), Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_whole)]
GBPS_LEAST, GBPS_MOST = 1e-3, 1e6
"""Limits of rates, in Gb/s. Beyond them, the solvers' tolerances are no longer small, and a unit is probably wrong."""
PORT_MOST = 1023
"""The highest number of a port; more than a switch has."""
Gbps = Annotated[Number, Field(ge=GBPS_LEAST, le=GBPS_MOST)]
PositiveWhole = Annotated[Whole, Field(gt=0)]
Role = Annotated[Literal["worker", "ps", "other"], BeforeValidator(as_written)]


def must_be(rule: str) -> PydanticCustomError:
    """Return the error of a validator whose field must be `rule`."""
    return PydanticCustomError("must_be", "{rule}", {"rule": rule})


def _within_bandwidth(reserved_gbps: float, info: ValidationInfo) -> float:
    for key in ("bw_gbps", "sender_gbps"):
        most = info.data.get(key)
        if most is not None and reserved_gbps > most:
            raise must_be(f"0 to its {key}")
    return reserved_gbps


ReservedGbps = Annotated[Number, Field(ge=0), AfterValidator(_within_bandwidth)]


class Record(BaseModel):
    """The base of all models. It refuses unknown fields, and values of another type, such as ``"10"`` for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_null(cls, given: Any) -> Any:
        """None is the default of a field that may be left out. It must not be given."""
        if plain_value(given) is None:
            raise PydanticCustomError("no_value", "no value")
        return given


def numbered_ports(text: str) -> dict[str, int]:
    """Return the number of the port to each neighbour in a text such as ``spine1=3, spine2=4``.

    Raises
    ------
    ValueError
        If the text has another form, or names a neighbour or a port twice.
    """
    parts = [
        (neighbour.strip(), port.strip()) for neighbour, _, port in (one.partition("=") for one in text.split(","))
    ]
    if all(neighbour and port.isascii() and port.isdigit() and int(port) <= PORT_MOST for neighbour, port in parts):
        found = {neighbour: int(port) for neighbour, port in parts}
        if len(found) == len(set(found.values())) == len(parts):
            return found
    raise ValueError(f"ports must be such as spine1=3, spine2=4, not {text!r}")


def _check_ports(text: str) -> str:
    try:
        numbered_ports(text)
    except ValueError:
        raise must_be(
            f"text such as spine1=3, spine2=4, with each neighbour and each port from 0 to {PORT_MOST} once"
        ) from None
    return text


class SwitchRecord(Record):
    """A switch. Fields that are not set limit nothing.

    aggregates : whether the switch can sum streams.
    capacity_gbps : Gb/s of all streams that it can sum, with headers.
    slots : segments of the job that it can have in flight (the `window` of an iswitch).
    members : members that a job can have at the switch.
    ports : the numbers of ports, by neighbour: ``spine1=3, spine2=4``. Other neighbours have the other numbers.
    """

    aggregates: Flag = False
    capacity_gbps: Gbps | None = None
    slots: PositiveWhole | None = None
    members: PositiveWhole | None = None
    ports: Annotated[Text, AfterValidator(_check_ports)] | None = None

    @model_validator(mode="after")
    def _check_capacity(self) -> "SwitchRecord":
        if self.aggregates and self.capacity_gbps is None:
            raise ValueError("a switch that aggregates needs capacity_gbps")
        return self


class HostRecord(Record):
    """A host: a worker, the parameter server (ps) at which sums end, or another. ingress_gbps: what a ps can take."""

    role: Role = "worker"
    ingress_gbps: Gbps | None = None


class CableRecord(Record):
    """A cable between two nodes.

    bw_gbps : Gb/s per direction.
    sender, sender_gbps : an end of the cable, and the Gb/s from that end, if they differ from bw_gbps.
    reserved_gbps : Gb/s per direction that are reserved for other traffic.
    """

    bw_gbps: Gbps
    name: Text | None = None
    sender: Text | None = None
    sender_gbps: Gbps | None = None
    reserved_gbps: ReservedGbps = 0.0

    @model_validator(mode="after")
    def _check_sender(self) -> "CableRecord":
        if (self.sender is None) != (self.sender_gbps is None):
            raise ValueError(
                "unlike rates need both 'sender', an end of the cable, and 'sender_gbps', the rate from it"
            )
        return self
