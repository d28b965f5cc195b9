"""Records of the fields of a frame, as they pass from the parser to the rules and to the composer of frames."""

from typing import NamedTuple

from iswitch.wire import Type

__all__ = ["Datagram", "Message", "Request", "Settings", "Source", "SwitchAddress"]


class SwitchAddress(NamedTuple):
    """The switch's own addresses."""

    mac: bytes
    ip: bytes


class Source(NamedTuple):
    """Where a frame came from, which is where its answer goes. `port` is one of the switch's."""

    port: int
    mac: bytes
    ip: int
    udp_port: int


class Datagram(NamedTuple):
    """A UDP payload that the switch sends, and where it goes."""

    to: Source
    payload: bytes


class Message(NamedTuple):
    """A valid iswitch frame of a type that the switch handles.

    `payload`: what follows the header. `detail` and `members`: the header's 2 bytes at offset 10 and 4 bytes at 14;
    contributions, uplinks and notices use them for what the properties name. Of a REQUEST to the replay service only
    `type` and `source` mean anything, because its header is another.
    """

    type: Type
    source: Source
    job: int
    epoch: int
    seq: int
    member: int
    flags: int
    format: int
    behind: int
    token: int
    payload: bytes
    detail: int = 0
    members: int = 0

    @property
    def tainted(self) -> int:
        """The tainted ranks that a RESULT names, in the place of `count` and `behind`."""
        return self.behind << 16 | self.detail

    @property
    def reason(self) -> int:
        """Reason of a NOTICE."""
        return self.detail

    @property
    def digest(self) -> int:
        """Digest of the results that the sender of a contribution or an uplink has applied."""
        return self.detail

    @property
    def collective(self) -> int:
        """The 32 bits of the `Collective` of a contribution, of an uplink, or of a NOTICE about one."""
        return self.members


class Settings(NamedTuple):
    """The settings of a job, on which all its members agree.

    The fields stand in the order in which they are checked. Their names are those of the reasons for which a Join is
    refused. `segments`: segments of an update; 0 if the job is synchronous.
    """

    world: int
    threshold: int
    format: int
    fraction: int
    elements: int
    mode: int
    deadline_us: int
    evict_us: int
    staleness: int = 0
    segments: int = 0


class Request(NamedTuple):
    """A control message.

    `number`: the header's `seq`. `ranks`: the header's `members`, the global ranks of a Join; 0 if its index is its
    only rank. `job_token`: the token that a Join proposes for the job. `challenge`: the state of the job number that
    the sender has seen. `operator_key`: the sender's claim to act for the operator of the switch; 0 if it has none.
    """

    action: int
    epoch: int
    member: int
    token: int
    number: int
    key: int
    nonce: int
    settings: Settings
    seq: int = 0
    address: int = 0
    ranks: int = 0
    job_token: int = 0
    challenge: int = 0
    operator_key: int = 0
