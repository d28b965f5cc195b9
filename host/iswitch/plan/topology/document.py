"""A YAML document that describes a topology, as pydantic models: racks, switches, hosts, links, and the job."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, WrapValidator, model_validator

from iswitch.plan.topology.job import JobSettings
from iswitch.plan.topology.records import (
    CableRecord,
    Gbps,
    HostRecord,
    Number,
    PositiveWhole,
    Record,
    ReservedGbps,
    SwitchRecord,
    Text,
    Whole,
    must_be,
)

__all__ = ["Document", "Host", "JobEntry", "Link", "Place", "Rack", "Switch", "Uplink", "part_at"]

Place = tuple[str | int, ...]
"""Keys and positions from the top of a document down to a value, as in ``("racks", 0, "name")``."""


class Switch(SwitchRecord):
    """An entry of `switches`; with a `count`, that many switches, numbered from 1."""

    name: Text
    count: PositiveWhole | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes that the entry stands for."""
        return self.count or 1

    @property
    def names(self) -> list[str]:
        """Names of the switches that the entry stands for."""
        return [self.name] if self.count is None else [f"{self.name}{number}" for number in range(1, self.count + 1)]

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of a node of the graph."""
        return {"kind": "switch"} | self.model_dump(include=set(SwitchRecord.model_fields), exclude_unset=True)


class Uplink(Record):
    """A cable from each switch of a rack to the switch `to`; ``spine*`` is all switches whose name begins with it.
    `sender_gbps` is the rate from the rack's switch, if it differs from `bw_gbps`."""

    to: Text
    bw_gbps: Gbps
    sender_gbps: Gbps | None = None
    reserved_gbps: ReservedGbps = 0.0


def _check_hosts(given: Any, check: Callable[[Any], Any]) -> Any:
    """Report one mistake, not one for each type that `hosts` may have."""
    try:
        return check(given)
    except ValidationError:
        raise must_be("a whole number from 0, or a list of names") from None


class Rack(Switch):
    """A switch with workers. `nic_sender_gbps` is the rate from each worker, if it differs from `nic_gbps`."""

    hosts: Annotated[Annotated[Whole, Field(ge=0)] | list[Text], WrapValidator(_check_hosts)]
    nic_gbps: Gbps
    nic_sender_gbps: Gbps | None = None
    uplinks: list[Uplink] = []

    @model_validator(mode="after")
    def _check_names(self) -> "Rack":
        if self.count is not None and isinstance(self.hosts, list):
            raise ValueError("with a count, hosts must be a number, such as hosts: 4, not a list of names")
        return self

    @property
    def nodes(self) -> int:
        """Number of nodes that the entry stands for."""
        return (self.count or 1) * (1 + (len(self.hosts) if isinstance(self.hosts, list) else self.hosts))

    def host_names(self, switch: str) -> list[str]:
        """Return the workers of one of the rack's switches."""
        if isinstance(self.hosts, list):
            return self.hosts
        return [f"{switch}-h{number}" for number in range(1, self.hosts + 1)]


class Host(HostRecord):
    """An entry of `hosts`, with its cable to `at`. `sender_gbps` is the rate from the host, if it differs."""

    name: Text
    at: Text | None = None
    bw_gbps: Gbps | None = None
    sender_gbps: Gbps | None = None

    @model_validator(mode="after")
    def _check_cable(self) -> "Host":
        if (self.at is None) != (self.bw_gbps is None):
            raise ValueError("its cable needs both 'at' and 'bw_gbps'")
        if self.sender_gbps is not None and self.at is None:
            raise ValueError("sender_gbps is a rate of its cable, which needs 'at' and 'bw_gbps'")
        return self


def _check_ends(ends: list[str]) -> list[str]:
    if len(ends) != 2 or ends[0] == ends[1]:
        raise must_be("a list of two different nodes")
    return ends


class Link(CableRecord):
    """An entry of `links`."""

    between: Annotated[list[Text], AfterValidator(_check_ends)]


def _not_empty(rule: str) -> AfterValidator:
    """Return the validator of a text or a list that must not be empty."""

    def check(given: Any) -> Any:
        if not given:
            raise must_be(rule)
        return given

    return AfterValidator(check)


class JobEntry(JobSettings):
    """An entry of `jobs`. Settings that it lacks are those of the section `job`.

    workers : hosts, or switches, which stand for all hosts at them; ``leaf*-h1`` is each whose name has this form.
    weight : a job of weight 2 should be twice as fast as one of weight 1.
    """

    name: Annotated[Text, _not_empty("text that is not empty")]
    workers: Annotated[list[Text], _not_empty("a list of at least one host or rack")]
    ps: Text | None = None
    weight: Annotated[Number, Field(ge=1e-3, le=1e3)] = 1.0

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `JobSettings` that the entry has."""
        return self.model_dump(include=set(JobSettings.model_fields), exclude_unset=True)


class Document(Record):
    """The document."""

    job: JobSettings = JobSettings()
    jobs: Annotated[list[JobEntry], _not_empty("a list of at least one job")] | None = None
    racks: list[Rack] = []
    switches: list[Switch] = []
    hosts: list[Host] = []
    links: list[Link] = []


PARTS: dict[str, tuple[str, type[Record]]] = {
    "job": ("the job", JobSettings),
    "jobs": ("a job", JobEntry),
    "racks": ("a rack", Rack),
    "uplinks": ("an uplink", Uplink),
    "switches": ("a switch", Switch),
    "hosts": ("a host", Host),
    "links": ("a link", Link),
}
"""By section, the noun for an entry without a name, and the model of an entry."""


def part_at(place: Place) -> tuple[str, type[Record]]:
    """Return the name and the model of the part that has the settings at a place."""
    sections = [key for key in place if key in PARTS]
    return PARTS[str(sections[-1])] if sections else ("the file", Document)
