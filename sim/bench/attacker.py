"""A seeded attacker at a port of the switch: mutations of other hosts' frames, and random frames.

What the attacker knows depends on its `Place` (docs/security.md, "Who attacks").
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from iswitch.wire import ACK, CONTROL, FRAME_BYTES, HEADER, Action, Type, ones_complement_sum, version_type
from sim.bench.attacker_clients import AttackerClients
from sim.bench.hosts import Host, arp_request, echo_request
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary

__all__ = ["Attacker", "Injected", "Place", "sealed"]

HEADER_AT = FRAME_BYTES - HEADER.itemsize
FIELDS = {name: (HEADER_AT + field[1], field[0].itemsize) for name, field in (HEADER.fields or {}).items()}
BODY = {name: (FRAME_BYTES + field[1], field[0].itemsize) for name, field in (CONTROL.fields or {}).items()}
NONCE_AT = FRAME_BYTES + ACK.fields["nonce"][1]
CONTROL_BYTES = FRAME_BYTES + CONTROL.itemsize
GROUPS = (b"\xff" * 6, bytes.fromhex("01005e000001"), bytes.fromhex("0180c2000000"), bytes.fromhex("0180c200000e"))
KEPT_FRAMES, RECENT_FRAMES = 4000, 200


class Place(Enum):
    """Where the attacker is, and what it has seen."""

    ANOTHER_PORT = "another_port"
    """At a port of its own. It knows addresses, jobs and seqs. It even has copies of the members' frames, tokens
    included, but can send them by its own port only."""

    MEMBER_PORT = "member_port"
    """Behind the port of members, beside them. It knows addresses, jobs and seqs, but no secret."""

    REPLAYS = "replays"
    """On the path of members: it sends copies of their frames, as late and as often as it likes, and changes none of
    those. It changes others, without secrets."""

    ON_PATH = "on_path"
    """On the path of members. It changes their frames, secrets included. These members' jobs are lost, no others."""


class Injected(NamedTuple):
    """A frame of the attacker, and the error that the MAC reports about it. `kind` is its mutation."""

    kind: str
    data: bytes
    error: bool = False
    overflow: bool = False


def sealed(frame: bytes | bytearray, *, checksum: bool = True) -> bytes:
    """Return a UDP frame with a correct IPv4 checksum and, with `checksum`, a correct UDP checksum; otherwise UDP
    checksum 0."""
    made = bytearray(frame)
    if len(made) < FRAME_BYTES - HEADER.itemsize:
        return bytes(made)
    made[24:26] = bytes(2)
    made[24:26] = (0xFFFF - ones_complement_sum(made[14:34])).to_bytes(2)
    made[40:42] = bytes(2)
    if checksum:
        pseudo = made[26:34] + b"\0\x11" + made[38:40]
        made[40:42] = ((0xFFFF - ones_complement_sum(pseudo + made[34:])) or 0xFFFF).to_bytes(2)
    return bytes(made)


class Attacker:
    """Sends frames by `port`.

    Parameters
    ----------
    place : Place
        What the attacker knows.
    seed : int
        Seed of all its choices.
    port : int
        Its port of the switch.
    victims : sequence of Client
        The members of other jobs, whose addresses the attacker knows.
    jobs : range
        Numbers of jobs that the attacker uses itself.
    longest : int
        Bytes of the longest frame that the switch takes.
    """

    def __init__(
        self, place: Place, *, seed: int, port: int, victims: Sequence[Client], jobs: range, longest: int
    ) -> None:
        self.place, self.port, self.victims, self.longest = place, port, list(victims), longest
        self.random = random.Random(f"attacker {seed} {place.name}")
        self.clients = AttackerClients(self.random, port=port, victims=victims, jobs=jobs)
        self.station = Host(self.clients.members[0].mac, self.clients.members[0].ip, port)
        self.seen: list[bytes] = []
        self.recent: deque[bytes] = deque(maxlen=RECENT_FRAMES)
        self.mutations: list[Callable[[], Injected]] = [
            self.change_field,
            self.change_field,
            self.change_field,
            self.change_secret,
            self.change_addresses,
            self.change_length,
            self.change_lower_header,
            self.replay,
            self.replay,
            self.speak_as_the_switch,
            self.send_ordinary,
            self.send_random_bytes,
            self.damage,
        ]

    def record(self, frame: bytes, port: int) -> None:
        """Show the attacker a frame of a victim; it keeps a random choice of all, old ones too."""
        if self.place in (Place.REPLAYS, Place.ON_PATH) and port != self.port:
            return
        self.recent.append(frame)
        if len(self.seen) < KEPT_FRAMES:
            self.seen.append(frame)
        elif self.random.random() < 0.2:
            self.seen[self.random.randrange(KEPT_FRAMES)] = frame

    def frame(self) -> Injected:
        """Return the next random frame."""
        return self.random.choice(self.mutations)()

    # Mutations of frames

    def base(self) -> bytearray:
        """Return a frame of a victim, without secrets if the attacker may not use them. Some old ones get the present
        epoch of their job, which any host may read."""
        frame = self.copy()
        if self.random.random() < 0.5:
            epoch = next((victim.epoch for victim in self.victims if victim.job == frame[HEADER_AT + 1]), 0)
            self.put(frame, *FIELDS["epoch"], epoch)
        # A Join with a member's secrets would move the member to this port, and an END needs no port.
        is_free = len(frame) == CONTROL_BYTES and frame[FRAME_BYTES] in (Action.JOIN, Action.END)
        keeps = self.place == Place.ON_PATH or (
            self.place == Place.ANOTHER_PORT and not is_free and self.random.random() < 0.5
        )
        return frame if keeps else self.without_secrets(frame)

    def copy(self) -> bytearray:
        """Return a frame of a victim, often a recent one."""
        return bytearray(self.random.choice(self.recent if self.random.random() < 0.5 else self.seen))

    def without_secrets(self, frame: bytearray) -> bytearray:
        self.put(frame, *FIELDS["token"], self.guess())
        if frame[HEADER_AT] & 0xF == Type.CONTROL and len(frame) == CONTROL_BYTES:
            for name in ("key", "nonce", "job_token"):
                self.put(frame, *BODY[name], self.guess())
        return frame

    def guess(self) -> int:
        return self.random.choice((0, 1, 2**32 - 1, self.random.getrandbits(64), self.random.getrandbits(64)))

    @staticmethod
    def put(frame: bytearray, at: int, size: int, value: int) -> None:
        frame[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")

    def seal(self, kind: str, frame: bytearray) -> Injected:
        return Injected(kind, sealed(frame, checksum=self.random.random() < 0.5))

    def change_field(self) -> Injected:
        """Change one or two fields of the header or of a control message's body."""
        rng, frame = self.random, self.base()
        for _ in range(rng.randrange(1, 3)):
            is_control = frame[HEADER_AT] & 0xF == Type.CONTROL and len(frame) == CONTROL_BYTES
            name, (at, size) = rng.choice(list((BODY if is_control and rng.random() < 0.5 else FIELDS).items()))
            old = int.from_bytes(frame[at : at + size], "little")
            near = old + rng.choice((-128, -64, -1, 1, 2, 64, 128, 256))
            value = rng.choice((0, near, near, rng.randrange(16), rng.getrandbits(8 * size), (1 << 8 * size) - 1))
            if name == "version_type":
                value = rng.choice((version_type(rng.randrange(16)), rng.randrange(256)))
            self.put(frame, at, size, value)
        return self.seal("field", frame)

    def change_secret(self) -> Injected:
        """Send a victim's frame with other secrets, or with a bit of its token wrong."""
        frame = self.without_secrets(self.copy())
        if self.random.random() < 0.3:
            frame[CONTROL_BYTES:] = b""
        return self.seal("secret", frame)

    def change_addresses(self) -> Injected:
        """Send a victim's frame from other addresses, or to others."""
        rng, frame = self.random, self.base()
        victim = rng.choice(self.victims)
        choice = rng.randrange(7)
        if choice == 0:
            frame[6:12] = rng.choice((victim.mac, SWITCH_MAC, bytes(6), rng.choice(GROUPS), self.station.mac))
        elif choice == 1:
            frame[26:30] = rng.choice((victim.ip, SWITCH_IP, bytes(4), bytes([224, 0, 0, 1]), self.station.ip))
        elif choice == 2:
            frame[34:36] = rng.getrandbits(16).to_bytes(2)
        elif choice == 3:
            frame[6:12], frame[26:30], frame[34:36] = victim.mac, victim.ip, victim.udp_port.to_bytes(2)
        elif choice == 4:
            frame[0:6] = rng.choice((victim.mac, rng.choice(GROUPS), rng.randbytes(6)))
        elif choice == 5:
            frame[30:34] = rng.choice((victim.ip, rng.randbytes(4)))
        else:
            frame[36:38] = rng.getrandbits(16).to_bytes(2)
        return self.seal("addresses", frame)

    def change_length(self) -> Injected:
        """Truncate or pad a victim's frame, with its lengths as they were or corrected."""
        rng, frame = self.random, self.base()
        if rng.random() < 0.5:
            del frame[rng.randrange(20, len(frame) + 1) :]
        else:
            room = max(0, self.longest - len(frame))
            frame += rng.randbytes(rng.choice((1, 2, 4, 100, room, room + 9)))
        if rng.random() < 0.6 and len(frame) >= HEADER_AT:
            frame[16:18] = (len(frame) - 14).to_bytes(2)
            frame[38:40] = (len(frame) - 34).to_bytes(2)
        return self.seal("length", frame)

    def change_lower_header(self) -> Injected:
        """Change Ethernet, IPv4 or UDP fields, or insert VLAN tags."""
        rng, frame = self.random, self.base()
        if rng.random() < 0.2:
            tags = b"".join(
                bytes.fromhex(rng.choice(("8100", "88a8", "9100"))) + rng.randbytes(2)
                for _ in range(rng.randrange(1, 4))
            )
            return Injected("lower header", bytes(frame[:12]) + tags + sealed(frame)[12:])
        at = rng.randrange(12, HEADER_AT)
        frame[at] = rng.choice((frame[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        if rng.random() < 0.5:
            return self.seal("lower header", frame)
        return Injected("lower header", bytes(frame))

    def replay(self) -> Injected:
        """Send a copy of a victim's frame; without secrets where the attacker has seen none."""
        if self.place in (Place.REPLAYS, Place.ON_PATH):
            return Injected("replay", bytes(self.copy()))
        return self.seal("replay", self.base())

    def speak_as_the_switch(self) -> Injected:
        """Send a message of the switch to a victim: with the switch's addresses, with one of them, or with others."""
        rng, victim = self.random, self.random.choice(self.victims)
        kind = rng.choice((Type.RESULT, Type.GRANT, Type.NOTICE, Type.ACK, Type.REFUSE))
        frame = bytearray(victim.frame(kind, rng.randbytes(4 * rng.randrange(1, 40) if kind != Type.ACK else 64)))
        self.put(frame, *FIELDS["token"], self.guess())
        self.put(frame, *FIELDS["members"], rng.getrandbits(3))
        if kind == Type.ACK:
            frame[NONCE_AT : NONCE_AT + 8] = rng.randbytes(8)
        frame[0:6], frame[6:12] = victim.mac, rng.choice((SWITCH_MAC, SWITCH_MAC, self.station.mac))
        frame[26:30], frame[30:34] = rng.choice((SWITCH_IP, SWITCH_IP, self.station.ip)), victim.ip
        frame[34:38] = frame[36:38] + frame[34:36]
        data = sealed(frame)
        if rng.random() < 0.3:
            data = data[:12] + bytes.fromhex(rng.choice(("81000000", "88a80001", "8100000281000003"))) + data[12:]
        return Injected("as the switch", data)

    def send_ordinary(self) -> Injected:
        rng = self.random
        if rng.random() < 0.1:
            return Injected("request", arp_request(self.station, rng.choice((SWITCH_IP, self.victims[0].ip))))
        if rng.random() < 0.1:
            return Injected("request", echo_request(self.station, rng.randbytes(rng.randrange(100))))
        macs = [
            SWITCH_MAC,
            rng.choice(GROUPS),
            rng.randbytes(6),
            rng.choice(self.victims).mac,
            rng.choice(self.clients.members).mac,
        ]
        kind = rng.choice((0x88B5, 0x0800, 0x0806, 0x8100, 0x86DD))
        size = rng.choice((60, 60, 64, rng.randrange(60, 200), rng.randrange(60, 1515)))
        return Injected("ordinary", ordinary(rng.choice(macs), rng.choice(macs), size, kind))

    def send_random_bytes(self) -> Injected:
        rng = self.random
        size = rng.choice((rng.randrange(1, 70), rng.randrange(60, 300), rng.randrange(60, 1600)))
        prefix = rng.choice((b"", SWITCH_MAC, SWITCH_MAC + self.station.mac + b"\x08\0\x45\0"))
        return Injected("random bytes", (prefix + rng.randbytes(size))[: max(1, size)])

    def damage(self) -> Injected:
        """Send a victim's frame with a bad FCS, or as if the port had no room for it."""
        is_overflow = self.random.random() < 0.3
        return Injected("damaged", bytes(self.base()), error=not is_overflow, overflow=is_overflow)

    def operation(self) -> Injected:
        """Return the next operation of the attacker's own clients."""
        return Injected("operation", self.clients.operation())
