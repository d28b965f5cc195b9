"""Frames of every kind and size in every state of a job, for crosses that random traffic seldom reaches."""

import copy
from collections.abc import Iterator

import numpy as np

from iswitch.config import Config
from iswitch.wire import CONTROL, FRAME_BYTES, SILENCE_TICK_US, ContributionFlag, Format, Mode, Type
from sim.bench.cosimulation import Pair
from sim.bench.hosts import Host, arp_request, crowd, echo_request, spoofed
from sim.bench.replay_client import ReplayClient
from sim.bench.traffic import broken_frames
from sim.bench.tree import Tree, with_fields
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary
from sim.fuzz.rtl import PatientPair

__all__ = ["directed", "payload_sizes", "tree_of_two"]

OPERATOR_KEY = 0x6F70
BROADCAST = b"\xff" * 6
RESERVED = bytes.fromhex("0180c2000003")
SPOILT: tuple[dict[str, int], ...] = (
    {},
    {"epoch": 77},
    {"member": 200},
    {"token": 1},
    {"format_flags": 9},
    {"job": 1},
    {"seq": 3},
)
"""Header fields of frames between switches."""
FLOODS = 1000
"""More broadcasts of one port than it may flood at once."""
WORKERS = 3
STATES = (
    "none",
    "forming",
    "running",
    "propagating",
    "asynchronous",
    "asynchronous, all",
    "halted",
    "halted, asynchronous",
    "ended",
)


def payload_sizes(config: Config) -> tuple[int, ...]:
    """Return bytes after the header, of each size class: none, within one word, in the middle, within the last word."""
    return 0, config.bus_bytes, 4 * (config.elements // 2), 4 * config.elements


def directed(config: Config) -> None:
    """Give a switch and its golden model the frames of every state of a job, and ordinary frames of every size."""
    pair = PatientPair(config, seed=9, operator_key=OPERATOR_KEY)
    stations(pair)
    for job, state in enumerate(STATES):
        if "asynchronous" in state and not config.staleness:
            continue
        number = job % config.jobs
        members = members_in(pair, number, state)
        for port, frame in frames_of_members(pair, members, state):
            take(members, pair.exchange(port, frame))
        end(pair, members[0])
    pair.counters_agree()
    pair.close()
    if config.uplinks and config.ports > 1:
        for half in (False, True) if config.half_width else (False,):
            in_tree(config, half_width=half)


def take(members: list[Client], answers: list[bytes]) -> None:
    """Let the members learn from the switch's answers."""
    for answer in answers:
        for member in members:
            if (
                answer[:12] == member.mac + member.switch_mac
                and len(answer) >= FRAME_BYTES
                and answer[12:14] == b"\x08\0"
            ):
                member.take(answer)


def end(pair: Pair, client: Client) -> None:
    """End the job of a client by the operator's key."""
    for _ in range(2):  # the answer to the first one has the challenge
        take([client], pair.exchange(client.port, client.end_job(key=0, operator_key=OPERATOR_KEY)))


def members_in(pair: Pair, job: int, state: str) -> list[Client]:
    """Return the clients of a job, which is brought into a state."""
    config = pair.config
    members = [Client.numbered(10 * job + k, port=k % config.ports, job=job) for k in range(WORKERS)]
    if state == "none":
        return members
    settings: dict[str, int] = {"world": WORKERS, "elements": config.elements}
    if "asynchronous" in state:
        settings |= {"segments": 3, "staleness": 1, "evict_us": 9 * SILENCE_TICK_US}
        settings |= {"threshold": 2 if state == "asynchronous" else WORKERS}
    if state == "propagating":
        settings |= {"mode": Mode.PROPAGATE, "format": Format.FP32, "threshold": 2}
    joining = members[:-1] if state == "forming" else members
    for _ in range(3):
        for k, client in enumerate(joining):
            take(members, pair.exchange(client.port, client.join(member=k, **settings)))
    if "halted" in state:
        take(members, pair.exchange(members[0].port, members[0].halt()))
    if state == "ended":
        end(pair, members[0])
    return members


def frames_of_members(pair: Pair, members: list[Client], state: str) -> Iterator[tuple[int, bytes]]:
    """Yield ports and frames: for each size what each check refuses, and then what a correct member sends."""
    config, client = pair.config, members[0]
    ring, base = config.slots, client.first_seq
    elsewhere = copy.copy(client)
    elsewhere.ip = client.ip[:3] + bytes([client.ip[3] ^ 1])
    for size in payload_sizes(config):
        zeros = bytes(size)
        good = client.contribution(base, zeros)
        for frame in broken_frames(good).values():
            yield client.port, frame
        for fields in (
            {"epoch": client.epoch ^ 1},
            {"member": 200},
            {"member": config.members - 1},
            {"token": client.token ^ 1},
            {"job": 200},
            {"version_type": 0x10},
            {"version_type": client_type(Type.GRANT)},
            {"version_type": client_type(Type.UPLINK)},
            {"version_type": client_type(Type.RESULT)},
            {"version_type": client_type(Type.CLAIM)},
            {"version_type": client_type(Type.RECEIPT)},
            {"format_flags": 9},
            {"format_flags": Format.BF16},
            {"format_flags": Format.FP16},
            {"format_flags": Format.FIXED64},
        ):
            yield client.port, with_fields(good, **fields)
        yield (client.port + 1) % config.ports, good
        yield client.port, elsewhere.contribution(base, zeros)
        yield client.port, client.contribution(base, bytes(size + 2))
        yield client.port, client.contribution(base, bytes(4 * config.elements + 8))
        yield from control_frames(members)
    if "asynchronous" in state:
        yield from claims_of_members(pair, members)
    yield from sums_of_members(pair, members, ring)
    if state not in ("none", "forming", "ended", "tree"):
        yield from joining_member(pair, members)


def joining_member(pair: Pair, members: list[Client]) -> Iterator[tuple[int, bytes]]:
    """Yield what a member sends that has left and come back, and waits for the next boundary."""
    client = members[-1]
    yield client.port, client.leave()
    client.forget(client.nonce + 0x1000)
    for _ in range(3):
        take([client], pair.exchange(client.port, client.join()))
    for size in payload_sizes(pair.config):
        yield client.port, client.contribution(client.first_seq, bytes(size))


def client_type(kind: Type) -> int:
    """Return the first byte of a header of a type."""
    return int(np.frombuffer(Client.numbered(0).frame(kind), "u1")[FRAME_BYTES - 22])


def control_frames(members: list[Client]) -> Iterator[tuple[int, bytes]]:
    """Yield requests that are answered or refused in any state."""
    client = members[0]
    yield client.port, client.read(0)
    yield client.port, client.control(9)
    yield client.port, client.frame(Type.CONTROL, bytes(CONTROL.itemsize - 4))
    yield client.port, client.resume(key=1)
    yield client.port, client.end_job(key=1)


def sums_of_members(pair: Pair, members: list[Client], ring: int) -> Iterator[tuple[int, bytes]]:
    """Yield the contributions and receipts of a ring's laps: added, repeated, late, of older laps, too early, of a slot
    that is held, of other collectives and with elements that no sum takes."""
    config, first, last = pair.config, members[0], members[-1]
    sizes = payload_sizes(config)[1:]
    half = ring // 2
    for lap in range(4):
        start = first.first_seq + lap * half
        for k, size in enumerate(sizes):
            spoilt = np.full(size // 4, 0x7F800000, "<u4").tobytes()
            contents = (spoilt, bytes(size)) if lap % 2 else (bytes(size), spoilt)
            for client in members if lap < 3 else members[:-1] or members:
                for content in contents:
                    yield client.port, client.contribution(start + k, content, behind=k)
                if lap == 2:  # the contributions of the others are late
                    yield client.port, client.fbcast(start + k)
                yield client.port, client.contribution(start + k, bytes(size), collective=5, digest=7, behind=k)
            yield last.port, last.contribution(start + k, bytes(size), behind=k)
        for size in (0, *sizes):
            for far in (-2 * ring, -ring, ring, 2 * ring, 5 * ring):
                for behind in (0, 1, 2 * ring):
                    frame = last.contribution(start + far, bytes(size), behind=behind)
                    yield last.port, frame
        for far in (-2 * ring, -1, 0, 1, ring, 5 * ring):
            for client in members:
                yield client.port, client.receipt(start + far, want=far >= 0)
        for client in members:
            yield client.port, client.receipt(start + half)


def claims_of_members(pair: Pair, members: list[Client]) -> Iterator[tuple[int, bytes]]:
    """Yield claims, granted, repeated, stale and of weights that nobody holds, and contributions of their updates."""
    config, base = pair.config, members[0].first_seq
    sizes = payload_sizes(config)[1:]
    for vector in (*range(1, 8), 2):
        for weights in (base - 3, base + 3 * vector - 3, base + 300):
            for client in members:
                yield client.port, client.claim(vector, weights)
        size = sizes[vector % len(sizes)]
        spoilt = np.full(size // 4, 0x7F800000, "<u4").tobytes()
        contents = (bytes(size), spoilt) if vector % 2 else (spoilt, bytes(size))
        for k in range(3 * vector - 3, 3 * vector + 3):
            for client in members:
                for content in contents:
                    yield client.port, client.contribution(base + k, content)
                yield client.port, client.contribution(base + k, bytes(size), collective=5, digest=7)
        for far in sizes:
            yield members[0].port, members[0].contribution(base + 3 * vector + 5, bytes(far))
        # The last one stops to acknowledge: then it does not hold the weights of its claims, and slots wait for it.
        for client in members if vector < 6 else members[:-1]:
            yield client.port, client.receipt(base + 3 * vector)


def stations(pair: Pair) -> None:
    """Ordinary frames of every size and outcome, and requests to the switch as a host."""
    config = pair.config
    a, b = (
        Host(mac, bytes([10, 0, 0, 60 + k]), k % config.ports) for k, mac in enumerate(crowd(config.mac_entries, 2))
    )
    send = lambda host, frame: pair.exchange(host.port, frame)
    for size in payload_sizes(config):
        length = max(60, FRAME_BYTES + size)
        for to in (a.mac, b.mac, BROADCAST, RESERVED, SWITCH_MAC):
            send(a, ordinary(to, a.mac, length))
            send(b, ordinary(to, b.mac, length))
        send(a, ordinary(b.mac, SWITCH_MAC, length))
        send(a, arp_request(a, SWITCH_IP, padding=length - 42))
        send(a, echo_request(a, bytes(length - 42)))
        send(a, spoofed(a).ljust(length, b"\0"))
    send(a, ordinary(b.mac, a.mac, config.frame_bytes_max))
    if config.flood_interval_us:
        for _ in range(FLOODS):
            pair.receive(a.port, ordinary(BROADCAST, a.mac), pair.now_us)
        for size in payload_sizes(config):
            pair.receive(a.port, ordinary(BROADCAST, a.mac, max(60, FRAME_BYTES + size)), pair.now_us)
    if config.replay:
        client = ReplayClient(1, port=a.port, nonce=77)
        for size in payload_sizes(config):
            send(a, client.request(0, bytes(size)))


def tree_of_two(config: Config, **settings: int) -> Tree:
    """Return a root with one leaf, as a job that runs: two workers at the leaf's last port, one at the root's first."""
    made = Tree(((-1, 0), (1, 1, 0)), config, switch=PatientPair, operator_key=OPERATOR_KEY)
    made.network.hosts.clear()
    for client, home in zip(made.clients, made.homes):
        client.port = config.ports - 1 if home else 0
        made.network.hosts[home, client.port] = made.take
    return made.join(**({"elements": config.uplink_elements} | settings))


def late_in_tree(made: Tree) -> None:
    """Complete segments without a worker at the root, and without those of the leaf, whose contributions are late."""
    first = made.clients[0].first_seq + 3
    for k, size in enumerate(payload_sizes(made.switches[0].config)[1:]):
        late, early = first + 2 * k, first + 2 * k + 1
        give = lambda rank, seq, size=size: made.send(rank, made.clients[rank].contribution(seq, bytes(size)))
        for rank in (0, 1):
            give(rank, late)
        made.send(2, made.clients[2].fbcast(late))
        give(2, late)
        give(2, early)
        made.send(2, made.clients[2].fbcast(early))
        for rank in (0, 1):
            give(rank, early)


def in_tree(config: Config, *, half_width: bool) -> None:
    """Give a leaf and its root what a member, a leaf and a parent could send, right and wrong."""
    settings: dict[str, int] = {"format": Format.BF16} if half_width else {}
    made = tree_of_two(config, **settings)
    root, leaf = made.switches
    top = config.ports - 1
    seen: dict[int, list[bytes]] = {0: [], 1: []}
    for number, pair in enumerate(made.switches):

        def receive(port, frame, now_us, error=False, exchange=pair.receive, between=seen[number], at=(top, 0)[number]):
            if port == at:
                between.append(frame)
            return exchange(port, frame, now_us, error)

        pair.receive = receive
    kind = np.uint16 if half_width else np.float32
    for segment, count in enumerate((2, config.uplink_elements // 4 * 2, config.uplink_elements)):
        made.reduce(np.ones((made.world, 1, count), kind), start=segment)
    late_in_tree(made)
    for pair, port, frames in ((root, top, seen[0]), (leaf, 0, seen[1])):
        give = lambda at, frame, pair=pair: pair.receive(at, frame, pair.now_us + 20)
        for frame in list(frames):
            kinds = {frame[FRAME_BYTES - 22], *map(client_type, (Type.RECEIPT, Type.CONTRIBUTION, Type.CLAIM))}
            cut = [frame, *(frame[:FRAME_BYTES] + bytes(size) for size in payload_sizes(config))]
            for sized in cut:
                for fields in SPOILT:
                    give(port, with_fields(sized, **fields))
                give((port + 1) % config.ports, with_fields(sized))
                give(port, with_fields(sized[:6] + bytes([2, 0, 0, 0, 0, 99]) + sized[12:]))
                for first in kinds:
                    give(port, with_fields(sized, version_type=first))
    for pair, clients in ((root, made.clients[2:]), (leaf, made.clients[:2])):
        for port, frame in frames_of_members(pair, clients, "tree"):
            pair.receive(port, frame, pair.now_us + 20)
    for rank in (1, 2):  # it waits for the next boundary
        client = made.clients[rank]
        made.send(rank, client.leave())
        client.forget(client.nonce + 0x1000)
        for _ in range(3):
            made.send(rank, client.join())
        for size in payload_sizes(config):
            made.send(rank, client.contribution(client.first_seq, bytes(size)))
    leaf.receive(made.clients[0].port, made.clients[0].halt(), leaf.now_us + 20)
    for size in payload_sizes(config):
        good = made.clients[0].contribution(made.clients[0].first_seq, bytes(size), flags=ContributionFlag.BOUNDARY)
        leaf.receive(made.clients[0].port, good, leaf.now_us + 20)
    for pair in made.switches:
        pair.counters_agree()
        pair.close()
