"""Jobs, members and slots as any host reads them, against what their workers did; across the wrap of serial
numbers."""

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.control.inspection import awaited_ranks, lowest_serial, read_job, read_member, read_progress, read_slot
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.wire import Format, JobState, MemberState, SlotState
from sim.bench.udp_model import UdpModel
from sim.frames.client import Client

FIRST = 2**32 - 8
CONFIG = Config(ports=2, members=4, window=4, elements=64)


@pytest.fixture
def model():
    with UdpModel(CONFIG, seed=seed_for_first_seq(FIRST, epoch=0x1234)) as made:
        yield made


def formed(model, count, **settings):
    workers = [Client.numbered(k, port=k % 2) for k in range(count)]
    for _ in range(2):
        for worker in workers:
            for _, frame in model.switch.receive(
                worker.port, worker.join(**{"world": count, "elements": 64} | settings), 0
            ):
                worker.take(frame)
    return workers


def contribute(model, worker, seq, behind=0):
    model.switch.receive(worker.port, worker.contribution(FIRST + seq, np.ones(5, np.float32), behind=behind), 0)


def test_a_job_and_its_members_read_as_they_joined(model, control):
    formed(model, 2, world=3, threshold=2, fraction=-3, deadline_us=7000, evict_us=1 << 20)
    assert read_job(control, 1).state == JobState.NONE and read_job(control, 1).format is None
    assert read_job(control, 0) == (
        0,
        JobState.FORMING,
        Format.WINDOW64,
        -3,
        0x1234,
        64,
        3,
        2,
        [0, 1],
        [],
        FIRST,
        7000,
        1 << 20,
        0,
        0,
    )
    assert read_member(control, 0, 1)[:5] == (1, MemberState.LIVE, 1, "10.0.0.101:40001", "02:00:00:00:00:01")
    assert read_member(control, 0, 2).standing == MemberState.NONE
    assert awaited_ranks(control, read_job(control, 0), {}, CONFIG.window) == [2]


def test_a_slot_shows_missing_ranks_until_it_is_complete(model, control):
    a, b, c = formed(model, 3)
    job = read_job(control, 0)
    contribute(model, c, 0)
    contribute(model, a, 0)
    slot = read_slot(control, 0, FIRST, CONFIG.window)
    assert slot == (FIRST, SlotState.COLLECTING, Format.WINDOW64, 20, [0, 2], [0, 2], [0, 1, 2]) and slot.missing == [1]
    assert awaited_ranks(control, job, read_progress(control, job), CONFIG.window) == [1]
    contribute(model, b, 0)
    slot = read_slot(control, 0, FIRST, CONFIG.window)
    assert slot.state == SlotState.COMPLETE and slot.missing == []
    assert awaited_ranks(control, job, read_progress(control, job), CONFIG.window) == []


def test_complete_segments_are_skipped_and_serial_numbers_wrap(model, control):
    a, b = formed(model, 2)
    job = read_job(control, 0)
    for seq in range(10):
        contribute(model, a, seq, behind=min(seq, 1))
        contribute(model, b, seq, behind=min(seq, 3))
    assert (
        read_progress(control, job) == {0: 0, 1: 2**32 - 2} and lowest_serial(read_progress(control, job)) == 2**32 - 2
    )
    assert awaited_ranks(control, job, read_progress(control, job), CONFIG.window) == []
    contribute(model, b, 10, behind=3)
    assert awaited_ranks(control, job, read_progress(control, job), CONFIG.window) == [0]


def test_the_lowest_of_no_numbers_is_0():
    assert lowest_serial({}) == 0
