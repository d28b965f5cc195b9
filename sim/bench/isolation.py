"""What an attacker at a port of its own costs the others: the time of their frames, and their NOTICEs.

The attacker knows no key, no token and no nonce of the others' job. Everything is measured on the compiled switch with
its default `Config`; members are behind ports 0 and 1.
"""

from collections.abc import Callable

import numpy as np

from iswitch.config import Config
from iswitch.wire import Reason, Type
from sim.bench.clients import checked_board, exchange, form_job
from sim.emulator.engine import Board
from sim.frames.client import Client, Reply, ordinary, parse

__all__ = ["ATTACKER_PORT", "ATTACKS", "FLOODS", "PLACES", "NOTICES", "count_notices", "victim_cycles"]

ATTACKER_PORT = 3
VICTIM_FRAMES = 600
NOTICES = 50
"""Frames that a member sends in `count_notices`, each of which should be answered."""
FLOOD_FRAMES = 8
"""Frames of the attacker for each of them."""

Attack = Callable[[Client, Client, int], list[bytes]]
"""Returns so many frames of two members of the attacker's own job."""


def resets(a: Client, b: Client, count: int) -> list[bytes]:
    frames = []
    for _ in range(count):
        frames.append(a.reset())
        a.epoch = (a.epoch + 1) % 65536
    return frames


def joins_and_ends(a: Client, b: Client, count: int) -> list[bytes]:
    """Return Joins of an unused job number and ENDs of that job. Most of them have an old challenge."""
    a.job, a.settings = 6, {"world": 1, "threshold": 1, "format": 1, "elements": 1, "mode": 0, "key": 5}
    return [frame for _ in range(count // 2) for frame in (a.join(member=255, token=0), a.end_job(5))]


ATTACKS: dict[str, Attack] = {
    "resets": resets,
    "joins_and_ends": joins_and_ends,
    "wanted_results": lambda a, b, count: [a.receipt(a.first_seq, want=True)] * count,
    "reads": lambda a, b, count: [a.read(0)] * count,
    "joins_of_a_member": lambda a, b, count: [a.join()] * count,
    "long_frames": lambda a, b, count: [ordinary(b.mac, a.mac, 1514)] * count,
}
"""Frames that cost the shared pipeline more time than others. `wanted_results` are receipts that want a stored result
of full size, `long_frames` ordinary frames of 1,514 bytes."""


def victim_cycles(attack: str | None = None) -> float:
    """Return the cycles for each of a victim's shortest frames beside as many frames of an attack, one of `ATTACKS`; or
    without an attacker.

    Raises
    ------
    RuntimeError
        If a frame of the victim is lost.
    """
    with Board(Config(), seed=5) as board:
        a, b = members = [Client.numbered(k, port=ATTACKER_PORT, job=7) for k in (8, 9)]
        form_job(board, members)
        victim, peer = bytes([2, 0, 0, 0, 1, 1]), bytes([2, 0, 0, 0, 1, 2])
        for port, frame in ((0, ordinary(peer, victim)), (1, ordinary(victim, peer))):
            board.send(port, frame)
        for member in members:  # a complete slot of full size
            exchange(board, member, member.contribution(member.first_seq, np.ones(board.config.elements, np.float32)))
        board.limit(8192)
        for frame in ATTACKS[attack](a, b, VICTIM_FRAMES) if attack else []:
            board.send(ATTACKER_PORT, frame)
        for _ in range(VICTIM_FRAMES):
            board.send(0, ordinary(peer, victim, 60))
        begin = board.cycles
        board.run(5_000_000, now_us=3)
        received = [frame for frame in board.receive(1) if frame.data[6:12] == victim and frame.first > begin]
        if len(received) != VICTIM_FRAMES:
            raise RuntimeError(f"{len(received)} of {VICTIM_FRAMES} frames of the victim arrived")
        return (received[-1].last - begin) / VICTIM_FRAMES


FLOODS: dict[str, Callable[[Client], bytes]] = {
    "no_such_job": lambda attacker: attacker.contribution(0, np.zeros(1, np.float32)),
    "another_token": lambda attacker: attacker.contribution(0, np.zeros(1, np.float32), job=0, token=1),
    "another_epoch": lambda attacker: attacker.contribution(0, np.zeros(1, np.float32), job=0, epoch=1),
}
"""Frames of the attacker that the switch would answer by a NOTICE, by what is wrong with them."""
PLACES = ("own_port", "member_port")
"""Places of the attacker."""


def is_told(replies: list[Reply]) -> bool:
    """Return True if the member has received exactly its NOTICE."""
    return [(reply.type, reply.reason) for reply in replies] == [(Type.NOTICE, Reason.EPOCH)]


def count_notices(flood: str, place: str) -> int:
    """Return how many of a member's `NOTICES` frames are answered beside a flood of `FLOODS`.

    The job of the member was reset, so each of its frames has an old epoch. The attacker sends `FLOOD_FRAMES` frames
    for each of them.
    """
    with checked_board() as board:
        a, b = members = [Client.numbered(k) for k in range(2)]
        form_job(board, members)
        stale = b.contribution(b.first_seq, np.zeros(4, np.float32))
        exchange(board, a, a.reset(), 2)
        attacker = Client.numbered(9, port=ATTACKER_PORT if place == "own_port" else b.port, job=7)
        bad, told = FLOODS[flood](attacker), 0
        for turn in range(NOTICES):
            for k in range(FLOOD_FRAMES):
                board.send(attacker.port, bad)
                if k == turn % FLOOD_FRAMES:
                    board.send(b.port, stale)
            board.run(now_us=3 + turn)
            told += is_told([parse(frame.data) for frame in board.receive(b.port) if frame.data[:6] == b.mac])
        return told
