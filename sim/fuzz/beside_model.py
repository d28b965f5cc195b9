"""A sequence of steps for a switch with the golden switch beside it, and a good round afterwards."""

from typing import Protocol

import numpy as np

from iswitch.wire import UDP_PORT, Action, Format, Type
from sim.bench.traffic import Traffic
from sim.frames.client import SWITCH_IP, SWITCH_MAC, parse, udp_frame
from sim.fuzz.steps import CONFIG, WORKERS, Senders, form, formed, sent_by

__all__ = ["OPERATOR_KEY", "Compared", "end_job", "require_good_round", "run_beside_model"]

OPERATOR_KEY = 0x0FE7A
"""With it, a job ends whatever key it has."""


class Compared(Protocol):
    """Two switches that receive the same frames. Every difference raises AssertionError."""

    def exchange(self, port: int, frame: bytes, error: bool = False) -> list[bytes]:
        """Give a frame to both switches, and return what they send."""

    def wait(self, us: int) -> None:
        """Let time pass."""


def run_beside_model(pair: Compared, start: int, steps: np.ndarray) -> int:
    """Form the jobs of a start, give both switches the steps, end the jobs, form them again, and sum.

    Parameters
    ----------
    pair : Compared
        New switches of the configuration `CONFIG` with the operator key `OPERATOR_KEY`.
    start : int
        Which of `STARTS`.
    steps : numpy.ndarray
        `STEP`, shape (length,).

    Returns
    -------
    int
        The number of steps that were present.

    Raises
    ------
    AssertionError
        If the switches differ, or the last sum is wrong.
    """
    traffic = formed(start, pair.exchange)
    present = steps[steps["present"] != 0]
    for step in present:
        pair.wait(int(step["wait_us"]))
        sent = sent_by(Senders.of(traffic.clients), step[None])
        source, length = sent.arrivals["source"][0], int(sent.arrivals["length"][0])
        frame = udp_frame(
            eth_dst=SWITCH_MAC,
            eth_src=source["mac"].tobytes(),
            ip_src=int(source["ip"]).to_bytes(4),
            ip_dst=SWITCH_IP,
            udp_src=int(source["udp_port"]),
            udp_dst=UDP_PORT,
            payload=sent.payloads[0, :length].tobytes(),
        )
        traffic.send(traffic.clients[step["sender"] % len(traffic.clients)], frame, port=int(source["port"]))
    for job in range(2):
        require_good_round(traffic, job)
    return len(present)


def end_job(traffic: Traffic, job: int) -> None:
    """End a job by the operator's key. Its clients start again with other nonces."""
    members = traffic.clients[WORKERS * job : WORKERS * (job + 1)]
    for _ in range(2):  # the answer to the first one has the challenge
        traffic.send(members[0], members[0].by_key(Action.END, 0, None, operator_key=OPERATOR_KEY))
    for client in members:
        client.forget(client.nonce + 0x1000)


def require_good_round(traffic: Traffic, job: int) -> None:
    """End a job, form it anew, and raise AssertionError unless its members get the right sum."""
    end_job(traffic, job)
    form(traffic, job, {})
    members = traffic.clients[WORKERS * job : WORKERS * (job + 1)]
    assert all(client.is_member for client in members), f"job {job} could not form after the sequence"
    elements = [np.arange(CONFIG.elements, dtype=np.uint32) * 977 + 0x10001 * client.member for client in members]
    sent: list[bytes] = []
    for client, numbers in zip(members, elements, strict=True):
        sent = traffic.exchange(client.port, client.contribution(client.first_seq, numbers, format=Format.INT32), False)
    results = [parse(frame) for frame in sent]
    assert [result.type for result in results] == [Type.RESULT] * WORKERS, f"job {job} has no sum after the sequence"
    wanted = sum(elements, np.zeros(CONFIG.elements, np.uint32))
    assert all((result.numbers == wanted).all() for result in results), f"job {job} has a wrong sum after the sequence"
