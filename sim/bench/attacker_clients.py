"""The attacker's own clients: members of its own jobs, and guests that make requests about the jobs of others."""

import random
from collections.abc import Callable, Sequence

from iswitch.wire import FRAME_BYTES, IP_PROTOCOL_UDP, Format, Reason, Type
from sim.frames.client import SWITCH_MAC, Client

__all__ = ["AttackerClients"]


class AttackerClients:
    """Members of jobs of their own, three in each of `jobs`, and a guest for each job of the `victims`, all behind
    `port`.

    Guests know settings and challenge of their job, but neither its key nor a token. `desynchronised` are members whose
    job has been reset.
    """

    def __init__(self, rng: random.Random, *, port: int, victims: Sequence[Client], jobs: range) -> None:
        self.random, self.victims = rng, list(victims)
        self.members = [Client.numbered(72 + k, port=port, job=job, key=99) for k, job in enumerate([*jobs] * 3)]
        self.guests = [
            Client.numbered(100 + job, port=port, job=job, key=rng.getrandbits(64))
            for job in sorted({victim.job for victim in victims})
        ]
        self.by_mac = {client.mac: client for client in (*self.members, *self.guests)}
        self.desynchronised: set[Client] = set()

    def operation(self) -> bytes:
        """Return the next message of the attacker's own members, or a well-formed request about a victim's job."""
        rng = self.random
        if rng.random() < 0.25:
            return self.request_of_guest(rng.choice(self.guests))
        client = rng.choice(self.members)
        if not client.is_member or client in self.desynchronised or rng.random() < 0.05:
            self.desynchronised.discard(client)
            if not client.settings or rng.random() < 0.1:
                settings = self.draw_settings()
                for other in self.members:
                    if other.job == client.job:
                        other.join(**settings)
            return client.join()
        seq = client.first_seq + rng.choice((rng.randrange(-4, 8), rng.randrange(200)))
        choices: list[Callable[[], bytes]] = [
            *[lambda: self.contribution_of(client, seq)] * 20,
            *[lambda: client.receipt(seq, behind=rng.randrange(70), want=rng.random() < 0.7)] * 4,
            *[lambda: client.claim(rng.randrange(1, 40), seq)] * 2,
            client.reset,
            client.join,
            client.leave,
            lambda: client.set_h(rng.randrange(0, 5)),
            lambda: client.fbcast(seq),
            lambda: client.halt(rng.random() < 0.5),
            client.resume,
            client.end_job,
            lambda: client.read(rng.choice((rng.randrange(400), rng.randrange(1 << 13), rng.getrandbits(32)))),
        ]
        return rng.choice(choices)()

    def contribution_of(self, client: Client, seq: int) -> bytes:
        rng = self.random
        return client.contribution(
            seq,
            rng.randbytes(4 * rng.randrange(1, 3)),
            behind=rng.randrange(4),
            format=rng.choice((None, None, Format.INT32)),
            flags=rng.choice((0, 0, rng.randrange(16))),
            collective=rng.choice((0, 0, 1)),
        )

    def draw_settings(self) -> dict[str, int]:
        rng = self.random
        segments = rng.choice((0, 0, 1, 3, 200))
        return {
            "world": rng.randrange(1, 4),
            "elements": rng.choice((24, 352)),
            "format": rng.choice((Format.WINDOW64, Format.FP32, Format.INT32)),
            "segments": segments,
            "staleness": rng.randrange(8) if segments else 0,
            "threshold": 1,
            "deadline_us": rng.choice((0, 0, 500)),
            "evict_us": rng.choice((0, 1 << 14, 1 << 20)),
        }

    def request_of_guest(self, guest: Client) -> bytes:
        """Return a request about a victim's job, with the present challenge and without a key."""
        rng = self.random
        settings = rng.choice(self.victims).settings
        if rng.random() < 0.3 or not guest.settings:
            guest.join(**{**(settings or self.draw_settings()), "key": rng.getrandbits(64)})
        choices: list[Callable[[], bytes]] = [
            guest.join,
            guest.join,
            lambda: guest.join(member=rng.randrange(4)),
            lambda: guest.end_job(rng.getrandbits(64)),
            lambda: guest.resume(rng.getrandbits(64)),
            lambda: guest.read(rng.randrange(1 << 13)),
            lambda: guest.leave(member=rng.randrange(4)),
            lambda: guest.reset(member=rng.randrange(4)),
            lambda: guest.halt(member=rng.randrange(4)),
        ]
        return rng.choice(choices)()

    def take(self, frame: bytes) -> None:
        """Handle a frame that has come to one of the attacker's clients."""
        client = self.by_mac.get(frame[:6])
        is_ours = len(frame) >= FRAME_BYTES and frame[6:14] == SWITCH_MAC + b"\x08\0" and frame[23] == IP_PROTOCOL_UDP
        if client is None or not is_ours:
            return
        reply = client.take(frame)
        if reply.type == Type.NOTICE and int(reply.header["token"]) != client.token:
            return
        if reply.type in (Type.NOTICE, Type.ACK) and reply.reason in (Reason.JOB, Reason.MEMBER, Reason.TOKEN):
            client.forget(self.random.getrandbits(64))
        elif reply.type == Type.NOTICE and reply.reason == Reason.EPOCH:
            self.desynchronised.add(client)
