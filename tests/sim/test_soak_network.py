"""The soak of a tree of compiled switches (`make soak`): what it covers in little time, and what it notices."""

import json
import random
import time
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest

from iswitch.wire import ACK, FRAME, FRAME_BYTES, HEADER, TAIL_BYTES, Action, JobState, Outcome, Reason, Type
from sim.bench.soak_failure import fails, from_text, shortest, to_text
from sim.bench.soak_job import BrokenPromiseError
from sim.bench.soak_long import RECORD, record, replayed, report, table
from sim.bench.soak_network import Figures, NetworkSoak, SoakError
from sim.bench.soak_pair import Cable, Entry, Frames, Registers, Stalls
from sim.frames.client import Reply

TYPE_AT = FRAME_BYTES - 22


def is_result(data: bytes) -> bool:
    return data[12:14] == b"\x08\0" and len(data) > FRAME_BYTES and data[TYPE_AT] & 0xF == Type.RESULT


def wrong(data: bytes) -> bytes:
    """Return a result with another sum, which no checksum notices."""
    made = bytearray(data)
    made[FRAME_BYTES] ^= 1
    complement = int.from_bytes(made[-2:], "big") + (-256 if made[FRAME_BYTES] & 1 else 256)
    made[-TAIL_BYTES + 2 :] = (complement % 0xFFFF).to_bytes(2)
    return bytes(made)


@pytest.fixture
def soak():
    made = NetworkSoak(seed=3)
    yield made
    made.close()


@pytest.mark.parametrize(("ahead", "phase"), [(1, "renewing"), (0, "running"), (-1, "running")])
def test_a_member_that_hears_of_a_newer_epoch_joins_anew_although_others_know_that_epoch(soak, ahead, phase):
    job = soak.jobs[0]
    worker, job.phase, job.epoch = job.workers[1], "running", 7
    worker.client.epoch = job.epoch - ahead
    header = np.zeros(1, HEADER)
    header["epoch"], header["count"] = job.epoch, Reason.EPOCH
    assert job.takes_notice(worker, Reply(Type.NOTICE, header[0], np.zeros(0), None, None))
    assert job.phase == phase


@pytest.mark.parametrize(
    ("is_member", "is_known", "has_another"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_member_that_its_switch_has_forgotten_joins_with_another_nonce(soak, is_member, is_known, has_another):
    """With the same nonce, a leaf that has restarted takes its old place, and slots stay empty for ever: seed 102."""
    job = soak.jobs[1]
    worker, job.phase = job.workers[2], "renewing"
    job.knows = lambda _: is_known
    worker.client.is_member, nonce = is_member, worker.client.nonce
    header, ack = np.zeros(1, HEADER), np.zeros(1, ACK)
    ack["action"], ack["reason"] = Action.JOIN, Reason.CHALLENGE
    job.handle_ack(worker, Reply(Type.ACK, header[0], np.zeros(0), None, ack[0]))
    assert (worker.client.nonce != nonce) == has_another


@pytest.mark.parametrize("reason", [Reason.JOB, Reason.MEMBER, Reason.TOKEN])
def test_only_a_switch_that_has_forgotten_a_member_may_refuse_its_reset(soak, reason):
    job = soak.jobs[1]
    worker = job.workers[0]
    header, ack = np.zeros(1, HEADER), np.zeros(1, ACK)
    ack["action"], ack["reason"] = Action.RESET, reason
    for is_known in (True, False):
        job.knows = lambda _, is_known=is_known: is_known
        job.phase, job.control, nonce = "running", (worker, b""), worker.client.nonce
        with pytest.raises(BrokenPromiseError, match="a RESET is refused") if is_known else nullcontext():
            job.handle_ack(worker, Reply(Type.ACK, header[0], np.zeros(0), None, ack[0]))
    assert job.phase == "renewing" and job.control is None and worker.client.nonce != nonce


def test_a_tree_with_faults_does_as_its_models_and_the_same_seed_gives_the_same_run():
    def run() -> Figures:
        soak = NetworkSoak(seed=8)
        soak.run(100)
        return soak.finish(160)

    figures = run()
    assert run() == figures
    assert {"loss", "duplicate", "reorder", "corrupt", "silent_corrupt", "a port stalls"} <= {*+figures.faults}
    assert {"tree", "synchronous", "asynchronous"} == {*+figures.complete}
    assert all(figures.outcomes[kind.name] for kind in (Outcome.ADDED, Outcome.ORDINARY, Outcome.REPLAY))


def spoil_results(soak: NetworkSoak) -> None:
    board = soak.pairs[1].board
    receive = board.receive
    board.receive = lambda port: [
        frame._replace(data=wrong(frame.data)) if is_result(frame.data) else frame for frame in receive(port)
    ]


def spoil_results_of_switch_and_model(soak: NetworkSoak) -> None:
    for pair in soak.pairs:
        take = pair.take
        pair.take = lambda step, take=take: [
            (port, wrong(data) if is_result(data) else data) for port, data in take(step)
        ]


def forget_a_frame(soak: NetworkSoak) -> None:
    board = soak.pairs[1].board
    trace = board.trace
    board.trace = lambda: trace()[1:]


def count_a_frame_twice(soak: NetworkSoak) -> None:
    board = soak.pairs[1].board
    trace = board.trace
    board.trace = lambda: [decision for decision in trace() for _ in range(2)]


def lose_a_frame_that_leaves(soak: NetworkSoak) -> None:
    board = soak.pairs[2].board
    receive = board.receive
    board.receive = lambda port: receive(port)[1:]


def count_an_outcome_too_much(soak: NetworkSoak) -> None:
    soak.pairs[2].model.outcomes[Outcome.ORDINARY] += 1


def send_no_results(soak: NetworkSoak) -> None:
    for pair in soak.pairs:
        take = pair.take
        pair.take = lambda step, take=take: [(port, data) for port, data in take(step) if not is_result(data)]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("spoil", "noticed"),
    [
        (spoil_results, "switch 1: after .* frames at once"),
        (spoil_results_of_switch_and_model, "another sum|different results"),
        (forget_a_frame, "no outcome of so many frames|another outcome"),
        (count_a_frame_twice, "an outcome without a frame|another outcome"),
        (lose_a_frame_that_leaves, "switch 2: after .* frames at once"),
        (count_an_outcome_too_much, "switch 2: after|for another number of frames"),
        (send_no_results, "does not go on"),
    ],
    ids=lambda case: getattr(case, "__name__", "noticed"),
)
def test_an_error_is_noticed(soak, spoil, noticed):
    soak.run(40, is_quiet=True)
    spoil(soak)
    with pytest.raises(SoakError, match=noticed):
        soak.run(20, is_quiet=True)
        soak.finish(80)


def sum_frame(job, *, epoch: int, seq: int, kind: Type = Type.RESULT) -> bytes:
    header = np.zeros(1, FRAME)
    header["job"], header["epoch"], header["seq"], header["version_type"] = job.number, epoch, seq, kind
    return header.tobytes()


def test_a_sum_of_an_epoch_that_is_over_may_expire_and_the_switch_must_have_counted_it(soak):
    soak.run(60, is_quiet=True)
    pair, job = soak.pairs[0], soak.jobs[5]
    held = pair.model.jobs[job.number]
    assert held.state == JobState.RUNNING
    now = sum_frame(job, epoch=held.epoch, seq=held.ring.slots[0].seq)
    over = sum_frame(job, epoch=held.epoch - 1, seq=held.ring.slots[0].seq)
    grant = sum_frame(job, epoch=held.epoch - 1, seq=0, kind=Type.GRANT)
    for kept, missing in (([], [now]), ([], [grant]), ([now], [over, now]), ([over], [])):
        expired = pair._expired(2, {"result": kept}, {"result": missing})
        assert expired == (missing == [over, now])
    assert not pair._expired(2, {"reply": []}, {"result": [over], "reply": [b""]})
    assert pair.expired == 1
    with pytest.raises(SoakError, match="switch 0: after"):
        soak.check_registers(0)


def test_a_frame_does_not_enter_where_no_cable_is(soak):
    frame = Frames(2, (Entry(1, b"\xff" * 6 + b"\2hosts" + bytes(50)),))
    no_cable = Cable(1, 1, up=False)
    entered = []

    class Watching:
        def take(self, step):
            entered.append(step)

        def close(self):
            pass

    assert not fails(Watching, [no_cable, frame, Cable(3, 1, up=True), frame])
    assert [len(step.entries) for step in entered if isinstance(step, Frames)] == [0, 1]


def test_a_failure_is_minimised_to_the_frame_that_shows_it_and_can_be_repeated(soak, tmp_path):
    """A switch that answers pings, beside a model that does not."""
    soak.run(30)
    pair = soak.pairs[0]
    request = next(
        Entry(port, frame)
        for port, frame in iter(soak.stations[0].frame, None)
        if frame[12:14] == b"\x08\x06" and pair.model.outcomes[Outcome.ANSWERED] is not None
        if (0, port) not in soak.out
    )
    made = soak.new_pair

    def deaf(number: int, seed: int | None = None):
        pair = made(number, seed)
        receive = pair.model.receive
        pair.model.receive = lambda port, frame, *rest, **options: (
            [] if frame == request.frame else receive(port, frame, *rest, **options)
        )
        return pair

    soak.new_pair = deaf
    pair.close()
    soak.pairs[0] = pair = deaf(0)
    chance = random.Random(1)
    steps = [Frames(k, tuple(Entry(p, soak.stations[0].frame()[1]) for p in range(3))) for k in range(6)]
    steps.insert(chance.randrange(6), Frames(3, (request,)))
    with pytest.raises(SoakError) as error:
        for step in steps:
            soak.take(0, step)
    text = report(soak, error.value, tmp_path)
    assert text.startswith("1 frames into switch 0, as few as possible")
    assert (tmp_path / f"switch0port{request.port}.pcap").stat().st_size == 24 + 16 + len(request.frame)
    assert not replayed(tmp_path / "steps.txt")  # the project's model answers


@pytest.mark.parametrize("needed", [{3}, {3, 17}, {0, 1, 2, 40, 41}, set()])
def test_what_is_left_is_all_that_is_needed(needed):
    tried = []

    def fails(items):
        tried.append(items)
        return needed <= set(items)

    left = shortest(range(60), fails, until=time.monotonic() + 60)
    assert set(left) == needed or len(left) == 1 and not needed
    assert left == sorted(left) and len(tried) < 400


def test_steps_are_read_as_they_were_written():
    steps = [
        Frames(7, (Entry(1, b"\x00\xff", True), Entry(0, b"a"))),
        Cable(8, 2, False),
        Stalls(1, "tx", 0.5, 3, 9),
        Registers(11),
    ]
    assert from_text(to_text(2, 5, steps)) == (2, 5, steps)


def test_the_figures_of_a_seed_count_once(tmp_path):
    one = Figures(10, 2, 1, Counter(loss=3), Counter(tree=1), Counter(formed=1), Counter(ADDED=2))
    for seed in (1, 2, 1):
        record(tmp_path / "figures.json", seed, one)
    held = json.loads((tmp_path / "figures.json").read_text())
    assert held["seeds"] == [1, 2] and held["total"]["cycles"] == 20 and held["total"]["faults"] == {"loss": 6}
    with pytest.raises(FileNotFoundError, match="holds no figures"):
        table(tmp_path / "none.json")


def test_the_page_has_the_figures_of_the_file():
    assert table(RECORD) in RECORD.with_name("verification.md").read_text()
