"""Random traffic that covers every rule, for the golden model, a simulated and a compiled switch.

The clients learn from the replies, so most of their contributions hit the window; the rest is stale, duplicated, early,
not allowed or broken on purpose. Ordinary stations send frames in between.
"""

from collections.abc import Callable

import numpy as np

from iswitch.config import Config
from iswitch.wire import FRAME_BYTES, SILENCE_TICK_US, ContributionFlag, Format, Type
from iswitch.wire.formats import FORMATS, supported_formats
from sim.bench.hosts import Hosts
from sim.frames.client import Client, ordinary

__all__ = ["ADVERSE", "Traffic", "adverse_elements", "adverse_numbers", "broken_frames"]

ADVERSE = np.array(
    [
        0x00000000,
        0x80000000,
        0x00000001,
        0x807FFFFF,
        0x3F800000,
        0xBF800000,
        0x33800000,
        0x46800000,
        0x467FFFFF,
        0xC67FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x7F7FFFFF,
        0x34000001,
        0x2F000000,
    ],
    np.uint32,
)
"""Zeros, subnormals, ties, the edge of the default range, infinities, NaN."""


def adverse_numbers(rng: np.random.Generator, count: int, chance: float = 0.02) -> np.ndarray:
    """Return float32 bit patterns, shape (count,), u32: ordinary gradients, with an element of ADVERSE with probability
    `chance` for each."""
    numbers = rng.normal(0, 10.0 ** rng.integers(-6, 3), count).astype(np.float32).view(np.uint32)
    odd = rng.random(count) < chance
    numbers[odd] = rng.choice(ADVERSE, int(odd.sum()))
    return numbers


def adverse_elements(rng: np.random.Generator, format: int, count: int, chance: float = 0.02) -> np.ndarray:
    """Return elements of a format as bit patterns, as `adverse_numbers` does: of `count`, or one more, as many as a
    contribution can have. Half-width ones are now and then any pattern instead."""
    if format not in FORMATS or not FORMATS[Format(format)].is_half_width:
        return adverse_numbers(rng, count, chance)
    numbers = adverse_numbers(rng, count + count % 2, chance)
    if format == Format.BF16:
        elements = (numbers >> 16).astype(np.uint16)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            elements = numbers.view(np.float32).astype(np.float16).view(np.uint16)
    odd = rng.random(elements.size) < chance
    elements[odd] = rng.integers(0, 1 << 16, int(odd.sum()))
    return elements


def broken_frames(frame: bytes) -> dict[str, bytes]:
    """Return an iswitch frame with one error of every kind that a wire or a faulty sender could cause, by the name of
    the Outcome or port counter under which it must be counted. Where the error is not in a checksum, the checksums are
    correct."""

    def flip(at: int) -> bytes:
        return frame[:at] + bytes([frame[at] ^ 0x40]) + frame[at + 1 :]

    return {
        "RX_RUNT": frame[:59],
        "LENGTH/ethernet": frame[:60],
        "LENGTH/header": frame[:63],
        "LENGTH/cut": frame[:-4],
        "LENGTH/padded": frame + bytes(4),
        "LENGTH/ip": flip(17),
        "LENGTH/udp": flip(39),
        "IP_CHECKSUM": flip(24),
        "UDP_CHECKSUM": flip(40),
        "UDP_CHECKSUM/payload": flip(len(frame) - 1),
        "IP_CHECKSUM/source": flip(26),
        "RX_OVERSIZE": frame + bytes(10000 - len(frame)),
    }


def asynchronous(rng: np.random.Generator) -> dict[str, int]:
    """Return the settings of a job: every second job is asynchronous."""
    segments = int(rng.choice([0, 0, 0, 1, 3, 7]))
    return {"segments": segments, "staleness": int(rng.choice([0, 1, 2, 7])) if segments else 0}


def is_datagram(frame: bytes) -> bool:
    """Return True if a frame of the switch carries UDP: a random frame can also make it answer ARP and ping."""
    return len(frame) >= FRAME_BYTES and frame[12:14] == b"\x08\x00" and frame[23] == 17


class Traffic:
    """An endless stream of (port, frame, error) for `config`, from `seed`. `exchange` is called with each frame and
    returns the replies, from which the clients learn."""

    def __init__(
        self,
        config: Config,
        *,
        seed: int,
        workers: int,
        jobs: int = 1,
        exchange: Callable[[int, bytes, bool], list[bytes]],
    ):
        self.config, self.rng, self.exchange = config, np.random.default_rng(seed), exchange
        self.clients = [
            Client.numbered(16 * job + k, port=(job + k) % config.ports, job=job)
            for job in range(jobs)
            for k in range(workers)
        ]
        self.workers, self.hosts = workers, Hosts(config, self.rng)
        self.held: dict[bytes, set[int]] = {client.mac: set() for client in self.clients}
        self.lost: set[int] = set()
        self.bases: dict[int, list[int]] = {job: [] for job in range(jobs)}
        self.vectors: dict[bytes, int] = {client.mac: 0 for client in self.clients}
        self.incarnation = 0

    def send(self, client: Client, frame: bytes, *, port: int | None = None, error: bool = False) -> None:
        """Send a frame; the clients note results, and notices of jobs that have ended."""
        for answer in self.exchange(client.port if port is None else port, frame, error):
            for other in self.clients:
                if answer[:12] == other.mac + other.switch_mac and is_datagram(answer):
                    reply = other.take(answer)
                    if reply.type == Type.RESULT:
                        self.held[other.mac].add(int(reply.header["seq"]))
                    elif reply.type == Type.NOTICE and int(reply.header["token"]) == other.token:
                        self.lost.add(other.job)
                    elif reply.type == Type.GRANT and int(reply.header["seq"]) not in self.bases[other.job]:
                        self.bases[other.job].append(int(reply.header["seq"]))

    def low(self, client: Client) -> int:
        """Return the lowest seq whose result the client lacks."""
        seq = client.first_seq
        while seq % 2**32 in self.held[client.mac]:
            seq += 1
        return seq

    def form(self, job: int, **settings: int) -> None:
        """Let all workers of a job join: request, confirm, ask again."""
        members = [c for c in self.clients if c.job == job]
        self.bases[job] = []
        for client in members:
            self.held[client.mac], self.vectors[client.mac] = set(), 0
        settings = {"world": len(members), "elements": self.config.elements} | settings
        for rounds in range(3):
            for k, client in enumerate(members):
                member = None if client.is_member or k % 2 else k
                self.send(client, client.join(member=member, **(settings if not rounds else {})))

    def steps(self, count: int, *, odd: float = 0.2) -> None:
        """Send `count` random frames; `odd` is the share of frames that a correct worker would not send."""
        for _ in range(count):
            client = self.clients[self.rng.integers(len(self.clients))]
            if client.job in self.lost and self.rng.random() < 0.1:
                self.lost.discard(client.job)
                self.rebuild(client.job)
            if self.rng.random() < odd:
                self.send_not_allowed(client)
            else:
                self.contribute(client)

    def contribute(self, client: Client) -> None:
        """Send a correct worker's frame: a contribution or a retransmission within its window, sometimes a receipt,
        often late."""
        rng, window = self.rng, self.config.window
        if client.settings["segments"] and rng.random() < 0.3:
            self.claim(client)
            return
        low = self.low(client)
        offset = int(rng.integers(0, window)) if rng.random() < 0.3 else 0
        seq = low + offset
        fmt = Format.INT32 if seq % 7 == 0 else client.format
        length = 1 + seq * 37 % self.config.elements
        flags = int(rng.integers(0, 2)) | self.kind(seq)
        self.send(
            client,
            client.contribution(seq, adverse_elements(rng, fmt, length, 0.003), format=fmt, behind=offset, flags=flags),
        )
        if rng.random() < 0.3:
            self.send(client, client.receipt(low + offset, behind=offset, want=bool(rng.random() < 0.5)))

    def claim(self, client: Client) -> None:
        """Send, in an asynchronous job, a claim of the next vector or the last one again, with present or older
        weights, mostly after the receipt for them."""
        rng, segments = self.rng, client.settings["segments"]
        low, bases = self.low(client), self.bases[client.job]
        lacked = (base for base in bases if 0 < (base + segments - low) % 2**32 < 2**31)
        weights = next(lacked, bases[-1] + segments if bases else client.first_seq)
        if rng.random() < 0.3:
            weights += int(rng.integers(-9, 3)) * segments
        if rng.random() < 0.8:
            self.send(client, client.receipt(low))
        if rng.random() < 0.6:
            self.vectors[client.mac] += 1
        self.send(client, client.claim(self.vectors[client.mac], weights))

    def kind(self, seq: int) -> int:
        """Return the flags that all members give a segment: sometimes the last of a collective, or one that requires
        all."""
        return ContributionFlag.BOUNDARY * (seq % 3 == 2) | ContributionFlag.REQUIRES_ALL * (seq % 11 < 2)

    def come_back(self, client: Client) -> None:
        """Join again as another incarnation, with another nonce."""
        self.incarnation += 1
        client.forget(1000 + self.incarnation)
        self.held[client.mac], self.vectors[client.mac] = set(), 0
        for _ in range(2):
            self.send(client, client.join())

    def send_not_allowed(self, client: Client) -> None:
        rng, config = self.rng, self.config
        if rng.random() < 0.4:
            port, frame = self.hosts.frame()
            self.send(client, frame, port=port, error=bool(rng.random() < 0.02))
            return
        base = self.low(client)
        numbers = adverse_numbers(rng, int(rng.integers(1, config.elements + 1)), 0.2)
        seq = (
            int(base + rng.choice([-4 * config.window, -1, 0, config.window, 2 * config.window, 5 * config.window]))
            % 2**32
        )
        kinds: list[Callable[[], bytes]] = [
            lambda: ordinary(b"\xff" * 6, client.mac, int(rng.integers(60, 1515))),
            lambda: ordinary(client.mac, client.switch_mac, 60),
            lambda: client.contribution(seq, numbers, behind=int(rng.integers(0, 2 * config.window))),
            lambda: client.contribution(base % 2**32, numbers, token=client.token ^ 1),
            lambda: client.contribution(base % 2**32, numbers, epoch=client.epoch ^ 1),
            lambda: client.contribution(base % 2**32, numbers, member=int(rng.integers(0, 256))),
            lambda: client.contribution(base % 2**32, numbers, job=int(rng.integers(0, 256))),
            lambda: client.contribution(base % 2**32, numbers, format=int(rng.integers(0, 16))),
            lambda: client.contribution(base % 2**32, numbers, version_type=int(rng.integers(0, 256))),
            lambda: client.contribution(base % 2**32, numbers, checksum=False),
            lambda: client.contribution(base, bytes(int(rng.integers(0, 4 * config.elements + 40)))),
            lambda: client.receipt(seq, behind=int(rng.integers(0, 2 * config.window)), want=True),
            lambda: client.frame(Type.RECEIPT, bytes(4)),
            lambda: client.frame(Type.CLAIM, bytes(4)),
            lambda: client.claim(int(rng.integers(0, 30)), base + int(rng.integers(-30, 30))),
            lambda: client.frame(Type.CONTROL, bytes(int(rng.integers(0, 100)))),
            lambda: client.control(
                int(rng.integers(0, 10)), {"threshold": int(rng.integers(0, 5))}, seq=int(rng.integers(0, 4))
            ),
            lambda: client.fbcast(base + int(rng.integers(-1, 3))),
            lambda: client.halt(bool(rng.random() < 0.3)),
            lambda: client.resume(challenge=client.challenge - int(rng.integers(0, 2)) & 0xFFFFFFFF),
            lambda: client.read(int(rng.integers(0, 110))),
            lambda: client.join(),
            lambda: client.join(token=7),
            lambda: client.join(challenge=client.challenge - int(rng.integers(-1, 2)) & 0xFFFFFFFF),
            lambda: client.end_job(challenge=client.challenge - 1 & 0xFFFFFFFF),
            lambda: client.end_job(key=int(rng.integers(0, 2))),
            lambda: client.join(member=int(rng.integers(0, 5)), nonce=int(rng.integers(1, 9))),
            lambda: client.set_h(int(rng.integers(0, self.workers + 2))),
            lambda: list(broken_frames(client.contribution(base % 2**32, numbers)).values())[int(rng.integers(0, 12))],
        ]
        frame = kinds[rng.integers(len(kinds))]()
        port = client.port if rng.random() < 0.95 else int(rng.integers(config.ports))
        self.send(client, frame, port=port, error=bool(rng.random() < 0.02))
        if rng.random() < 0.05:
            self.send(client, client.leave() if rng.random() < 0.8 else client.reset())
        if rng.random() < 0.1:
            self.come_back(client)
        if rng.random() < 0.01:
            self.rebuild(client.job)

    def rebuild(self, job: int) -> None:
        """End the job by its key and form it anew, in another mode and format."""
        members = [c for c in self.clients if c.job == job]
        for _ in range(2):
            self.send(members[0], members[0].end_job())
        for client in members:
            self.incarnation += 1
            client.forget(1000 + self.incarnation)
        rng = self.rng
        formats = sorted(supported_formats(half_width=self.config.half_width))
        format = formats[rng.integers(len(formats))]
        self.form(
            job,
            mode=int(rng.integers(0, 2)),
            format=format,
            fraction=int(rng.choice([44, -70, 0, 126, 149])) if format != Format.FP16 else int(rng.integers(24, 43)),
            threshold=int(rng.integers(1, self.workers + 1)),
            deadline_us=int(rng.choice([0, 400, 3000])),
            evict_us=int(rng.choice([0, 1, 3])) * SILENCE_TICK_US,
            **asynchronous(rng),
        )
