"""What the fuzzers give a switch: sequences of steps, which become payloads.

A step is a payload with its sender, its time and its differences from what that sender should send. So a step of zeros
has the right job, epoch, member and token, whatever these are, and a sequence keeps its meaning with another switch.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.native.records import SOURCE
from iswitch.wire import CONTROL, FLAGS_SHIFT, HEADER, SILENCE_TICK_US, VERSION, Format, Mode, Type
from sim.bench.traffic import ADVERSE, Traffic
from sim.frames.client import Client
from sim.fuzz.runner import ABSENT, ARRIVAL

__all__ = [
    "CONFIG",
    "LENGTH",
    "PAYLOAD_BYTES",
    "STARTS",
    "STEP",
    "WORKERS",
    "Senders",
    "Sent",
    "form",
    "formed",
    "from_text",
    "sent_by",
    "to_text",
]

LENGTH = 48
"""Steps of a sequence."""
CONFIG = Config(ports=2, bus_bits=64, members=4, jobs=2, window=4, elements=40, half_width=True)
PAYLOAD_BYTES = HEADER.itemsize + 4 * CONFIG.elements + 20
"""The longest payload of a step: longer than a contribution may be."""
WORKERS = 3
"""Of each job."""

STEP = np.dtype(
    [
        ("present", "<u1"),  # 0: the step is left out
        ("sender", "<u1"),  # modulo the number of senders
        ("stray", "<u1"),  # bits: another port, UDP port, IPv4 address, MAC address than the sender's
        ("pattern", "<u2"),  # which elements a contribution has
        ("wait_us", "<u4"),  # since the step before it
        ("length", "<u2"),  # of the payload, modulo PAYLOAD_BYTES + 1
        ("header", HEADER),
        ("body", CONTROL),  # of a control message
    ]
)

STARTS: tuple[tuple[dict[str, int], dict[str, int]], ...] = (
    ({}, {"mode": Mode.PROPAGATE, "format": Format.FP32}),
    (
        {"threshold": 2, "deadline_us": 60, "evict_us": 20 * SILENCE_TICK_US},
        {"segments": 3, "staleness": 1, "threshold": 2, "evict_us": 3 * SILENCE_TICK_US},
    ),
    (
        {"segments": 1, "staleness": 7, "threshold": 1},
        {"format": Format.BF16, "mode": Mode.PROPAGATE, "threshold": 2, "deadline_us": 60},
    ),
    ({"format": Format.FP16, "fraction": 30}, {"format": Format.FP32, "threshold": 1}),
)
"""The settings of both jobs at the begin of a sequence."""

ELEMENTS = np.concatenate([np.array([1, -1, 0.5, 3, 1e-3, -7, 100, 1e-9] * 12, np.float32).view(np.uint32), ADVERSE])
"""Elements of contributions; what a sum rejects or rounds stands at the end."""


def formed(start: int, exchange: Callable[[int, bytes, bool], list[bytes]]) -> Traffic:
    """Form both jobs of a start, and return their workers, which learn from what the switch answers."""
    traffic = Traffic(CONFIG, seed=1, workers=WORKERS, jobs=2, exchange=exchange)
    traffic.clients.append(Client.numbered(50, port=1, job=0))  # no member of any job
    traffic.held[traffic.clients[-1].mac], traffic.vectors[traffic.clients[-1].mac] = set(), 0
    for job in range(2):
        form(traffic, job, STARTS[start][job])
    return traffic


def form(traffic: Traffic, job: int, settings: dict[str, int]) -> None:
    """Form a job of all its workers."""
    non_member = traffic.clients.pop()
    traffic.form(job, **settings)
    traffic.clients.append(non_member)


class Senders(NamedTuple):
    """What is right for each sender: arrays, a sender each. `number` and `vector` are those of its last command and
    its last claim."""

    header: np.ndarray
    body: np.ndarray
    first_seq: np.ndarray
    source: np.ndarray
    number: np.ndarray
    vector: np.ndarray

    @classmethod
    def of(cls, clients: Sequence[Client]) -> "Senders":
        """Return what the clients have learned."""
        header, body = np.zeros(len(clients), HEADER), np.zeros(len(clients), CONTROL)
        source, first_seq = np.zeros(len(clients), SOURCE), np.zeros(len(clients), np.uint32)
        for k, client in enumerate(clients):
            header["job"][k], header["epoch"][k], header["member"][k] = client.job, client.epoch, client.member
            header["token"][k], header["version_type"][k] = client.token, VERSION << FLAGS_SHIFT
            body["key"][k], body["nonce"][k], body["challenge"][k] = client.key, client.nonce, client.challenge
            body["job_token"][k], first_seq[k] = client.proposed_job_token, client.first_seq % 2**32
            ip = int.from_bytes(client.ip, "big")
            source[k] = ip, client.udp_port, client.port % CONFIG.ports, tuple(client.mac)
        number, vector = np.zeros((2, len(clients)), np.uint32)
        return cls(header, body, first_seq, source, number, vector)


class Sent(NamedTuple):
    """Payloads, uint8 with their bytes in the last axis, and where and when they arrive, `ARRIVAL`."""

    payloads: np.ndarray
    arrivals: np.ndarray


def sent_by(senders: Senders, steps: np.ndarray) -> Sent:
    """Return what steps send.

    Parameters
    ----------
    senders : Senders
        What is right for each sender.
    steps : numpy.ndarray
        `STEP`, shape (sequences, length).
    """
    who = steps["sender"] % len(senders.header)
    payloads = np.zeros((*steps.shape, PAYLOAD_BYTES), np.uint8)
    header = payloads[..., : HEADER.itemsize].view(HEADER)[..., 0]
    header[...] = steps["header"]
    for name in ("version_type", "job", "epoch", "member", "token"):
        header[name] ^= senders.header[name][who]
    kind = header["version_type"] & 0xF
    first = senders.first_seq[who]
    header["seq"] += np.select(
        [kind == Type.CONTROL, kind == Type.CLAIM], [senders.number[who], senders.vector[who]], first
    )
    header["members"] += np.where(kind == Type.CLAIM, first, np.uint32(0))
    body = payloads[..., HEADER.itemsize :]
    pattern = steps["pattern"].astype(np.uint32)[..., None]
    chosen = (pattern + np.arange(body.shape[-1] // 4, dtype=np.uint32) * (pattern >> 8 | 1)) % ELEMENTS.size
    body[..., : 4 * chosen.shape[-1]] = ELEMENTS[chosen].view(np.uint8).reshape(*steps.shape, -1)
    is_control = kind == Type.CONTROL
    control = steps["body"][is_control]
    for name in ("key", "nonce", "challenge", "job_token"):
        control[name] ^= senders.body[name][who[is_control]]
    body[is_control, : CONTROL.itemsize] = control.view(np.uint8).reshape(len(control), CONTROL.itemsize)
    arrivals = np.zeros(steps.shape, ARRIVAL)
    arrivals["source"] = senders.source[who]
    source = arrivals["source"]
    source["port"] = (source["port"] + (steps["stray"] & 1)) % CONFIG.ports
    source["udp_port"] ^= steps["stray"] >> 1 & 1
    source["ip"] ^= steps["stray"] >> 2 & 1
    source["mac"][..., 5] ^= (steps["stray"] >> 3 & 1) << 7
    present = steps["present"] != 0
    arrivals["now_us"] = np.cumsum(np.where(present, steps["wait_us"], 0), axis=-1, dtype=np.uint64)
    arrivals["length"] = np.where(present, steps["length"] % (PAYLOAD_BYTES + 1), np.uint32(ABSENT))
    return Sent(payloads, arrivals)


def to_text(start: int, steps: np.ndarray) -> str:
    """Return a sequence as text: its start, and a line of hexadecimal digits for each step, without the zeros at its
    end."""
    present = steps[steps["present"] != 0]
    return "\n".join([f"start {start}", *(step.tobytes().rstrip(b"\0").hex() for step in present), ""])


def from_text(text: str) -> list[tuple[int, np.ndarray]]:
    """Return the sequences that a text holds, each with its start. Lines that begin with # are comments.

    Raises
    ------
    ValueError
        If a line is no step, or a sequence has too many.
    """
    found: list[tuple[int, list[bytes]]] = []
    for line in text.splitlines():
        if line.startswith("start "):
            found.append((int(line.split()[1]), []))
        elif line and not line.startswith("#"):
            found[-1][1].append(bytes.fromhex(line).ljust(STEP.itemsize, b"\0"))
    sequences = []
    for start, lines in found:
        if len(lines) > LENGTH or any(len(line) != STEP.itemsize for line in lines):
            raise ValueError(f"a sequence must have at most {LENGTH} steps of {STEP.itemsize} bytes, not {len(lines)}")
        steps = np.zeros(LENGTH, STEP)
        steps[: len(lines)] = np.frombuffer(b"".join(lines), STEP)
        sequences.append((start, steps))
    return sequences
