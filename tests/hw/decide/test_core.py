"""The core at the level of headers against the golden model. The whole switch is compared frame by frame elsewhere."""

from itertools import pairwise

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.wire import Operation, Outcome, Stat, Type
from sim.bench.core import CoreBench
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


def running(bench, workers=2):
    """Clients of a job that runs."""
    clients = [Client.numbered(k) for k in range(workers)]
    for _ in range(2):
        for client in clients:
            [answer] = bench.exchange(client.port, client.join(world=workers, elements=16))
            client.take(answer)
    return clients


def test_contribution_has_its_verdict_after_5_cycles_and_the_next_one_comes_after_6():
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
    assert [later - earlier for earlier, later in pairwise(times)] == [6] * 4
    assert [shown - taken for taken, shown in zip(times, verdicts.times[begin:], strict=True)] == [5] * 5


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
