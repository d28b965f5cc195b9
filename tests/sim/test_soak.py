"""An attacker's random frames and operations beside running jobs, on the compiled switch with its default `Config`.

`python -m sim.bench.soak` runs a million of them.
"""

from unittest.mock import patch

import pytest

from hw.bridge import forwarder
from hw.decide import checks
from hw.decide.membership import command
from hw.synthesis.emit import rtlil
from iswitch.wire import FRAME_BYTES, TAIL_BYTES, Outcome, Type
from sim.bench.attacker import Place
from sim.bench.mutant import mutant
from sim.bench.soak_job import BrokenPromiseError
from sim.bench.soak_rounds import Soak

TYPE_AT = FRAME_BYTES - 22


@pytest.mark.parametrize("frames", [500, 30_000])
def test_an_attacker_changes_no_sum_stops_no_job_and_all_its_frames_are_counted(frames):
    for place in Place:
        soak = Soak(place, seed=frames)
        soak.run(frames, frames // 10)
        report = soak.finish(quiet_rounds=40)
        assert report.outcomes[Outcome.SPOOFED.name] > frames / 50
        assert all(count > 10 for job, count in report.complete.items() if int(job[0]) not in soak.lost)


def is_result(data: bytes) -> bool:
    return data[12:14] == b"\x08\0" and len(data) > FRAME_BYTES and data[TYPE_AT] & 0xF == Type.RESULT


def wrong_sum(receive, port):
    """The frames of a port, with a bit of each sum flipped where no checksum notices it."""
    for frame in receive(port):
        data = bytearray(frame.data)
        if is_result(frame.data):
            data[FRAME_BYTES] ^= 1
            complement = int.from_bytes(data[-2:], "big") + (-256 if data[FRAME_BYTES] & 1 else 256)
            data[-TAIL_BYTES + 2 :] = (complement % 0xFFFF).to_bytes(2)
        yield frame._replace(data=bytes(data))


def forged_result(receive, port):
    """The frames of a port, the results with another token."""
    for frame in receive(port):
        if is_result(frame.data):
            data = bytearray(frame.data)
            data[60:64] = data[62:64] + data[60:62]  # the checksums stay correct
            yield frame._replace(data=bytes(data))
        else:
            yield frame


def no_result(receive, port):
    """The frames of a port without results."""
    return (frame for frame in receive(port) if not is_result(frame.data))


@pytest.mark.parametrize(
    ("tamper", "noticed"),
    [(wrong_sum, "another sum"), (forged_result, "without the secret"), (no_result, "hangs|does not go on")],
)
def test_a_wrong_sum_a_forged_result_and_a_job_that_hangs_are_noticed(tamper, noticed):
    soak = Soak(Place.ANOTHER_PORT, seed=1)
    soak.run(100, 10)
    receive = soak.board.receive
    soak.board.receive = lambda port: list(tamper(receive, port))
    with pytest.raises(BrokenPromiseError, match=noticed):
        soak.run(100, 10)
        soak.finish(quiet_rounds=50)
    soak.board.close()


def test_a_frame_without_an_outcome_and_one_that_is_counted_twice_are_noticed():
    soak = Soak(Place.ANOTHER_PORT, seed=1)
    soak.run(100, 10)
    soak.outcomes[Outcome.TOKEN.name] += 1
    with pytest.raises(BrokenPromiseError, match="are counted for"):
        soak.check_counters()
    trace = soak.board.trace
    soak.board.trace = lambda: trace()[1:]
    with pytest.raises(BrokenPromiseError, match="outcomes of"):
        soak.run(100, 10)
    soak.board.close()


MUTANTS = {
    "a frame of the switch is forwarded": (
        Place.ANOTHER_PORT,
        (
            "hw.decide.core.Forwarder",
            forwarder,
            "with m.Elif(self.spoofed):",
            "with m.Elif(self.spoofed & ~self.spoofed):",
        ),
    ),
    "the port is not compared": (
        Place.ANOTHER_PORT,
        ("hw.decide.core.Checks", checks, "(port_good, Outcome.PORT)", "(port_good | 1, Outcome.PORT)"),
    ),
    "the token is not compared": (
        Place.MEMBER_PORT,
        ("hw.decide.core.Checks", checks, "(token_good, Outcome.TOKEN)", "(token_good | 1, Outcome.TOKEN)"),
    ),
    "an old END ends a job": (
        Place.REPLAYS,
        (
            "hw.decide.membership.membership.Command",
            command,
            "with m.If(~challenge_matches):",
            "with m.If(challenge_matches & ~challenge_matches):",
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_switch_with_a_hole_is_noticed(name):
    place, (target, module, original, wrong) = MUTANTS[name]

    def design(config):
        with patch(target, getattr(mutant(module, original, wrong), target.rpartition(".")[2])):
            return rtlil(config)

    soak = Soak(place, seed=1, design=design)
    with pytest.raises(BrokenPromiseError) as found:
        soak.run(30_000, 3000)
        soak.finish()
    print(found.value)
    soak.board.close()
