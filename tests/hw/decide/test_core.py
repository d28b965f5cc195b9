"""The core at the level of headers against the golden model. The whole switch is compared frame by frame elsewhere."""

from itertools import pairwise

import numpy as np
import pytest

import hw.decide.core
from iswitch.config import Config
from iswitch.wire import SILENCE_TICK_US, ContributionFlag, Operation, Outcome, Stat, Type
from sim.bench.core import CoreBench
from sim.bench.stream import BrokenPromiseError
from sim.bench.traffic import Traffic
from sim.frames.client import Client, ordinary

CONFIG = Config(ports=3, bus_bits=64, members=4, jobs=2, window=2, elements=16, queue_bytes=4096, mac_entries=64)


@pytest.mark.parametrize(("seed", "stalls"), [(1, 0), (2, 0.4)])
def test_random_traffic_has_the_models_outcomes_operations_and_replies(seed, stalls):
    bench = CoreBench(CONFIG, seed=seed)
    traffic = Traffic(CONFIG, seed=seed, workers=3, exchange=bench.exchange)
    traffic.form(0, threshold=2)
    traffic.steps(140, odd=0.5)
    bench.check(stalls=stalls)
    assert len(set(bench.model.fates)) >= 15


@pytest.mark.parametrize("settings", [{}, {"segments": 3, "staleness": 1}], ids=["synchronous", "asynchronous"])
def test_a_verdict_stays_while_it_waits(settings):
    """Control messages write the row of their job a cycle before their verdict is offered."""
    bench = CoreBench(CONFIG, seed=5)
    traffic = Traffic(CONFIG, seed=5, workers=3, exchange=bench.exchange)
    traffic.form(0, **{"threshold": 2} | settings)
    traffic.steps(60, odd=0.3)
    bench.check(wait=3)


@pytest.mark.mutant
def test_a_mutant_whose_verdict_does_not_stay_is_noticed(mutated_core):
    bench = CoreBench(CONFIG)
    comes_after_a_frame_that_completes_a_sum_of_another_job(bench)
    core = mutated_core(hw.decide.core, '~fsm.ongoing("DECIDE") & ~fsm.ongoing("ISSUE")', '~fsm.ongoing("DECIDE")')
    with pytest.raises(BrokenPromiseError):
        bench.check(core=core, wait=3)


@pytest.mark.parametrize(
    ("seed", "stalls", "settings"),
    [
        (7, 0, {"segments": 3, "staleness": 1}),
        (6, 0.4, {"segments": 1, "staleness": 0}),
        (3, 0, {"segments": 7, "staleness": 7}),
        (3, 0, {"segments": 2, "staleness": 2, "threshold": 1, "evict_us": 2**14}),
    ],
)
def test_claims_have_the_models_outcomes_grants_and_refusals(seed, stalls, settings):
    bench = CoreBench(CONFIG, seed=seed)
    traffic = Traffic(CONFIG, seed=seed, workers=3, exchange=bench.exchange)
    traffic.form(0, **{"threshold": 2} | settings)
    traffic.steps(400, odd=0.15)
    bench.check(stalls=stalls)
    assert {Outcome.CONTROL, Outcome.REFUSED, Outcome.DUPLICATE, Outcome.WINDOW, Outcome.UNHELD, Outcome.ADDED} <= set(
        bench.model.fates
    )
    assert sum(work.operation == Operation.GRANT for work in bench.model.works) > 5


def running(bench, workers=2, job=0, **settings):
    """Clients of a job that runs."""
    clients = [Client.numbered(k, job=job) for k in range(workers)]
    for _ in range(2):
        for client in clients:
            [answer] = bench.exchange(client.port, client.join(world=workers, elements=16, **settings))
            client.take(answer)
    return clients


def test_contribution_has_its_verdict_after_5_cycles_and_the_next_one_comes_after_3_or_for_the_same_slot_6():
    bench = CoreBench(CONFIG)
    a, b = running(bench)
    begin = len(bench.headers)
    for seq in range(2):
        for client in (a, b):
            bench.exchange(client.port, client.contribution(client.first_seq + seq, np.ones(4, np.float32), behind=seq))
    bench.exchange(a.port, a.receipt(a.first_seq + 2))
    source, verdicts, _ = bench.check()
    assert bench.model.fates[begin:] == [Outcome.ADDED] * 4 + [Outcome.RECEIPT]
    times = source.times[begin:]
    assert [later - earlier for earlier, later in pairwise(times)] == [6, 3, 6, 6]
    assert [shown - taken for taken, shown in zip(times, verdicts.times[begin:], strict=True)] == [5] * 5


def send(bench, client, ahead, behind=0, **fields):
    """Send a contribution to the seq `ahead` of the first one."""
    frame = client.contribution(client.first_seq + ahead, np.ones(4 + ahead, np.float32), behind=behind, **fields)
    bench.exchange(client.port, frame)


def takes_a_slot_whose_result_the_frame_before_acknowledges(bench):
    a, b = running(bench)
    send(bench, a, 0)
    send(bench, b, 0)
    send(bench, b, 1)
    send(bench, a, 4, behind=1)
    return [Outcome.ADDED] * 4, [3]


def acknowledges_more_than_the_frame_before(bench):
    a, b = running(bench)
    for client in (a, b):
        send(bench, client, 1, behind=1)
    send(bench, a, 2)
    send(bench, b, 3)
    send(bench, b, 5)
    return [Outcome.ADDED] * 5, [3]


def waits_for_the_sender_of_the_frame_before(bench):
    """The sender was silent until then, for longer than `evict_us`."""
    a, b = running(bench, evict_us=SILENCE_TICK_US)
    send(bench, a, 0)
    for _ in range(64):
        bench.exchange(a.port, a.receipt(a.first_seq))
    send(bench, b, 1, behind=1)
    send(bench, a, 0)
    return [Outcome.ADDED, Outcome.DUPLICATE], [3]


def is_for_the_slot_of_the_frame_before(bench):
    a, b = running(bench)
    send(bench, a, 0)
    send(bench, b, 0)
    return [Outcome.ADDED] * 2, [6]


def opens_the_slot_behind_a_boundary_that_admits_a_member(bench):
    a, b, c = running(bench, workers=3, threshold=2)
    bench.exchange(c.port, c.leave())
    c.forget(99)
    for _ in range(2):
        c.take(bench.exchange(c.port, c.join(world=3, elements=16, threshold=2))[0])
    send(bench, a, 0, flags=ContributionFlag.BOUNDARY)
    send(bench, b, 0, flags=ContributionFlag.BOUNDARY)
    send(bench, a, 1, flags=ContributionFlag.REQUIRES_ALL)
    send(bench, b, 1, flags=ContributionFlag.REQUIRES_ALL)
    send(bench, a, 2, behind=1)
    return [Outcome.ADDED] * 5, [6, 6, 6]


def has_another_epoch(bench):
    """Whether a frame enters early does not depend on whether it is sound."""
    a, b = running(bench)
    send(bench, a, 0)
    send(bench, b, 1, epoch=b.epoch + 1)
    send(bench, a, 2, behind=1)
    return [Outcome.ADDED, Outcome.EPOCH, Outcome.ADDED], [3, 6]


def comes_after_a_frame_of_another_job(bench):
    """The slots of both have the same place in the rings of their jobs."""
    a, _ = running(bench)
    c, *_ = running(bench, workers=3, job=1)
    send(bench, a, 1)
    send(bench, c, 1, behind=1)
    send(bench, a, 2, behind=1)
    return [Outcome.ADDED] * 3, [3, 3]


def comes_after_a_frame_that_completes_a_sum_of_another_job(bench):
    a, b = running(bench)
    c, *_ = running(bench, workers=3, job=1)
    for seq in range(3):
        for client in (a, b, c):
            send(bench, client, seq, behind=min(seq, 1), flags=ContributionFlag.BOUNDARY)
    return [Outcome.ADDED] * 9, [6, 3, 3] * 2 + [6, 3]


def comes_after_a_frame_that_is_answered_with_a_sum_of_another_job(bench):
    a, b = running(bench)
    c, *_ = running(bench, workers=3, job=1)
    send(bench, a, 0)
    send(bench, b, 0)
    send(bench, a, 0)
    send(bench, c, 1)
    return [Outcome.DUPLICATE, Outcome.ADDED], [6]


def acknowledges_what_a_member_of_another_job_with_its_number_did(bench):
    _, b = running(bench)
    c, d = running(bench, job=1)
    for client in (c, d):
        send(bench, client, 0)
    send(bench, b, 1)
    send(bench, d, 1)
    send(bench, c, 4, behind=1)
    return [Outcome.ADDED] * 3, [3, 3]


def takes_a_slot_whose_result_was_acknowledged_before_a_frame_of_another_job(bench):
    a, b = running(bench)
    c, _ = running(bench, job=1)
    send(bench, a, 0)
    send(bench, b, 0)
    send(bench, b, 1)
    send(bench, c, 0)
    send(bench, a, 4, behind=1)
    return [Outcome.ADDED] * 5, [6, 3, 3, 3]


def comes_after_a_frame_with_a_notice(bench):
    a, b = running(bench)
    send(bench, a, 0, epoch=a.epoch + 1)
    send(bench, b, 1, behind=1)
    return [Outcome.EPOCH, Outcome.ADDED], [6]


def comes_after_a_frame_that_the_slot_does_not_take(bench):
    a, b = running(bench)
    send(bench, a, 0)
    send(bench, b, 0)
    send(bench, a, 0)
    send(bench, b, 1)
    return [Outcome.DUPLICATE, Outcome.ADDED], [6]


EARLY = (
    takes_a_slot_whose_result_the_frame_before_acknowledges,
    acknowledges_more_than_the_frame_before,
    waits_for_the_sender_of_the_frame_before,
    is_for_the_slot_of_the_frame_before,
    opens_the_slot_behind_a_boundary_that_admits_a_member,
    has_another_epoch,
    comes_after_a_frame_of_another_job,
    comes_after_a_frame_that_completes_a_sum_of_another_job,
    comes_after_a_frame_that_is_answered_with_a_sum_of_another_job,
    acknowledges_what_a_member_of_another_job_with_its_number_did,
    takes_a_slot_whose_result_was_acknowledged_before_a_frame_of_another_job,
    comes_after_a_frame_with_a_notice,
    comes_after_a_frame_that_the_slot_does_not_take,
)


@pytest.mark.parametrize("stalls", [0, 0.4])
@pytest.mark.parametrize("frame", EARLY)
def test_a_frame_is_decided_as_behind_the_frame_before_and_enters_early_only_if_it_may(frame, stalls):
    bench = CoreBench(CONFIG)
    outcomes, cycles = frame(bench)
    source, *_ = bench.check(stalls=stalls)
    assert bench.model.fates[-len(outcomes) :] == outcomes
    assert stalls or [later - earlier for earlier, later in pairwise(source.times)][-len(cycles) :] == cycles


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("frame", "sound", "wrong"),
    [
        (
            takes_a_slot_whose_result_the_frame_before_acknowledges,
            "ring.before.advances.eq(decided.advances)",
            "ring.before.advances.eq(0)",
        ),
        (acknowledges_more_than_the_frame_before, "ring.before.low.eq(decided.low)", "ring.before.low.eq(0)"),
        (waits_for_the_sender_of_the_frame_before, "ring.before.valid.eq(follows_in_job)", "ring.before.valid.eq(0)"),
        (
            acknowledges_what_a_member_of_another_job_with_its_number_did,
            "follows_in_job.eq(enters_early & same_job)",
            "follows_in_job.eq(enters_early)",
        ),
        (is_for_the_slot_of_the_frame_before, "next_frame.frame.seq[:slot_bits] != frame.seq[:slot_bits]", "1"),
        (
            opens_the_slot_behind_a_boundary_that_admits_a_member,
            "& ~(rows.job_row.joining | rows.job_row.admitted).any()",
            "",
        ),
        (has_another_epoch, "and its rows are compared. compare()", "and its rows are compared."),
        (
            takes_a_slot_whose_result_was_acknowledged_before_a_frame_of_another_job,
            "tables.written_job.eq(decided.job)",
            "tables.written_job.eq(rows.job)",
        ),
        (
            comes_after_a_frame_that_completes_a_sum_of_another_job,
            '~fsm.ongoing("DECIDE") & ~fsm.ongoing("ISSUE")',
            '~fsm.ongoing("DECIDE")',
        ),
        (
            comes_after_a_frame_that_is_answered_with_a_sum_of_another_job,
            '~fsm.ongoing("DECIDE") & ~fsm.ongoing("ISSUE")',
            '~fsm.ongoing("ISSUE")',
        ),
        (
            comes_after_a_frame_with_a_notice,
            "may_enter_early & ring.accepts & ~fault",
            "may_enter_early & ring.accepts",
        ),
        (
            comes_after_a_frame_that_the_slot_does_not_take,
            "may_enter_early & ring.accepts & ~fault",
            "may_enter_early & ~fault",
        ),
        (
            takes_a_slot_whose_result_the_frame_before_acknowledges,
            "tables.written_slot.eq(decided.slot)",
            "tables.written_slot.eq(rows.slot)",
        ),
        (
            takes_a_slot_whose_result_the_frame_before_acknowledges,
            "verdict.length.eq(decided.length)",
            "verdict.length.eq(held.headers.arrival.scan.length)",
        ),
    ],
)
def test_a_mutant_of_early_entry_is_noticed(mutated_core, frame, sound, wrong):
    bench, core = CoreBench(CONFIG), mutated_core(hw.decide.core, sound, wrong)
    frame(bench)
    with pytest.raises((AssertionError, TimeoutError)):
        for stalls in (0, 0.5):
            bench.check(core=core, stalls=stalls)


def test_claims_take_no_longer_than_contributions_unless_somebody_waits_to_join():
    bench = CoreBench(CONFIG)
    settings = {"world": 3, "elements": 16, "segments": 3, "staleness": 1, "threshold": 2}
    clients = [Client.numbered(k) for k in range(3)]
    for _ in range(2):
        for client in clients:
            client.take(bench.exchange(client.port, client.join(**settings))[0])
    a, b, c = clients
    begin = len(bench.headers)

    def work():
        seq = a.first_seq + 3 * (len(bench.headers) > begin)
        k = 1 + (seq != a.first_seq)
        for client in (a, b):
            bench.exchange(client.port, client.claim(k, seq))
        for client in (a, b, c):
            bench.exchange(client.port, client.contribution(seq, np.ones(4, np.float32)))
        bench.exchange(a.port, a.receipt(seq, want=True))

    work()
    middle = len(bench.headers)
    bench.exchange(c.port, c.leave())
    c.forget(99)
    for _ in range(2):
        c.take(bench.exchange(c.port, c.join(**settings))[0])
    again = len(bench.headers)
    for client in (a, b):
        bench.exchange(client.port, client.claim(2, a.first_seq))
        bench.exchange(client.port, client.receipt(a.first_seq + 1))
    source, verdicts, _ = bench.check()
    frames = [verdict for verdict in zip(verdicts.items, verdicts.times, strict=True) if verdict[0].frame]
    for first, last, cycles in ((begin, middle, 6), (again, len(bench.headers), 9)):
        times = source.times[first:last]
        assert [later - earlier for earlier, later in pairwise(times)] == [cycles] * (last - first - 1)
        assert [shown - taken for taken, (_, shown) in zip(times, frames[first:last], strict=True)] == [5] * (
            last - first
        )


def test_ordinary_frame_has_its_verdict_after_2_cycles_and_the_next_one_comes_after_2():
    bench = CoreBench(CONFIG)
    for _ in range(5):
        bench.exchange(0, ordinary(b"\xff" * 6, b"\2" * 6))
    source, verdicts, _ = bench.check()
    assert source.times == list(range(source.times[0], source.times[0] + 10, 2))
    assert verdicts.times == [taken + 2 for taken in source.times]


def test_members_get_every_notice_and_each_port_has_its_own_for_unknown_hosts():
    """Members of a job that was reset, behind the ports of a flood and beside it, and one that was evicted."""
    bench = CoreBench(CONFIG)
    clients = running(bench, workers=3)
    bench.exchange(clients[0].port, clients[0].reset())
    bench.exchange(clients[2].port, clients[2].leave())
    for turn in range(6):
        for port in (0, 1, 2):
            bench.exchange(port, Client.numbered(9, job=1).contribution(0, bytes(4)))
            for client in clients:
                bench.exchange(port, client.contribution(client.first_seq, bytes(4), epoch=client.epoch + turn % 2))
    bench.check()
    told = [port for port, frame in bench.model.replies if frame[42] & 15 == Type.NOTICE]
    assert len(told) > 6 * 3 and set(told) == {0, 1, 2}
    assert bench.model.stats[Stat.NOTICES_SUPPRESSED] > 6


def test_notices_are_sent_once_in_an_interval():
    bench = CoreBench(CONFIG)
    unknown_host = Client.numbered(1)
    for _ in range(7):
        bench.exchange(1, unknown_host.contribution(0, bytes(4)))
    bench.check()
    assert bench.model.fates == [Outcome.JOB] * 7
    assert len(bench.model.replies) == 3  # at 0, 120 and 240 us


def test_both_sides_of_a_conflict_learn_of_the_others_collective():
    """The later contribution is answered with the slot's collective, a retransmission of the earlier with the
    rival's."""
    bench = CoreBench(CONFIG)
    a, b = running(bench)
    for client, collective, digest in ((a, 5, 7), (b, 6, 7), (a, 5, 7), (b, 5, 8), (a, 5, 7), (b, 5, 7), (b, 6, 7)):
        frame = client.contribution(client.first_seq, bytes(4), collective=collective, digest=digest)
        bench.exchange(client.port, frame)
    bench.check()
    notices = [frame for _, frame in bench.model.replies if frame[42] & 15 == Type.NOTICE]
    assert [int.from_bytes(frame[56:60], "little") for frame in notices] == [5, 6, 5, 5, 5]
    assert bench.model.fates[-7:] == [
        Outcome.ADDED,
        Outcome.COLLECTIVE,
        Outcome.DUPLICATE,
        Outcome.COLLECTIVE,
        Outcome.DUPLICATE,
        Outcome.ADDED,
        Outcome.COLLECTIVE,
    ]
