"""The compiled RTL against the golden model, frame by frame and in bursts, on both engines and several buses."""

from dataclasses import replace

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.wire import SILENCE_TICK_US, Format, Mode, Outcome, Stat
from sim.bench.cosimulation import DivergenceError, Pair
from sim.bench.designs import HALF_WIDTH, TWO_PORTS
from sim.bench.hosts import Hosts
from sim.bench.throughput import joined, stations
from sim.bench.traffic import Traffic, adverse_elements
from sim.frames.client import Client, ordinary, parse

SMALL = TWO_PORTS
WIDE = Config(ports=3, bus_bits=512, members=32, window=4, elements=352)
DESIGNS = [
    pytest.param(SMALL, "verilator", id="64-bit-2-ports"),
    pytest.param(Config(), "verilator", id="256-bit-4-ports"),
    pytest.param(SMALL, "cxxrtl", id="64-bit-2-ports-cxxrtl", marks=pytest.mark.slow),
    pytest.param(WIDE, "verilator", id="512-bit-3-ports-32-members", marks=pytest.mark.slow),
    pytest.param(replace(SMALL, uplinks=False), "verilator", id="64-bit-2-ports-no-trees", marks=pytest.mark.slow),
]
HALVES = [
    pytest.param(HALF_WIDTH, "verilator", id="64-bit-2-ports"),
    pytest.param(replace(Config(), half_width=True), "verilator", id="256-bit-4-ports", marks=pytest.mark.slow),
    pytest.param(replace(WIDE, half_width=True), "verilator", id="512-bit-3-ports-32-members", marks=pytest.mark.slow),
]


def stalled(pair: Pair, chance: float) -> Pair:
    for port in range(pair.config.ports):
        pair.board.stall(port, "rx", chance, seed=port + 1)
        pair.board.stall(port, "tx", chance, seed=port + 100)
    return pair


@pytest.mark.parametrize(("config", "engine"), DESIGNS)
@pytest.mark.parametrize("chance", [0.0, 0.3], ids=["flowing", "stalled"])
def test_random_traffic_gives_the_same_frames_and_counters(config, engine, chance):
    pair = stalled(Pair(config, engine=engine, seed=5), chance)
    traffic = Traffic(config, seed=int(10 * chance) + 12, workers=3, jobs=2, exchange=pair.exchange)
    traffic.form(0)
    traffic.form(1, mode=Mode.PROPAGATE, format=Format.FP32)
    for us in (0, 40_000_000, 290_000_000, 310_000_000, 3_000_000_000):  # a bridge forgets after 285 to 302 s
        pair.wait(us)
        traffic.steps(300)
    assert all(
        pair.model.outcomes[kind] for kind in (Outcome.FILTERED, Outcome.RESERVED, Outcome.ANSWERED, Outcome.UNANSWERED)
    )
    pair.counters_agree()
    pair.close()


@pytest.mark.parametrize(("config", "engine"), HALVES)
@pytest.mark.parametrize("chance", [0.0, 0.3], ids=["flowing", "stalled"])
def test_random_traffic_of_half_width_jobs_gives_the_same_frames_and_counters(config, engine, chance):
    pair = stalled(Pair(config, engine=engine, seed=5), chance)
    traffic = Traffic(config, seed=int(10 * chance) + 12, workers=3, jobs=2, exchange=pair.exchange)
    traffic.form(0, format=Format.BF16)
    traffic.form(1, mode=Mode.PROPAGATE, format=Format.FP16, fraction=30)
    for us in (0, 40_000_000, 3_000_000_000):
        pair.wait(us)
        traffic.steps(300)
        for client in traffic.clients:  # a format of another job, which random frames seldom have
            other = Format.FP16 if client.format == Format.BF16 else Format.BF16
            traffic.send(client, client.contribution(traffic.low(client), np.ones(4, np.uint16), format=other))
    kinds = (Outcome.ADDED, Outcome.QUARANTINED, Outcome.LENGTH, Outcome.FORMAT, Outcome.DUPLICATE)
    assert all(pair.model.outcomes[kind] for kind in kinds)
    pair.counters_agree()
    pair.close()


def members_come_and_go(pair: Pair, traffic: Traffic) -> None:
    """In a job that begins anew, a member is admitted at a boundary, others are evicted because a claim waits for them,
    and a claim is older than the last one."""
    members = [client for client in traffic.clients if client.job == 0]
    traffic.send(members[0], members[0].end_job())
    for client in members:
        client.forget(client.nonce + 1)
    traffic.form(0, segments=3, staleness=1, threshold=2, evict_us=3 * SILENCE_TICK_US)
    traffic.steps(100, odd=0)
    traffic.send(members[0], members[0].leave())
    traffic.come_back(members[0])
    traffic.steps(300, odd=0)
    pair.wait(9 * SILENCE_TICK_US)
    for _ in range(20):
        traffic.claim(members[0])
    last = traffic.vectors[members[0].mac]
    for vector in (last, last - 1):  # the second one is stale
        traffic.send(members[0], members[0].claim(vector, traffic.low(members[0])))


@pytest.mark.parametrize(("config", "engine"), DESIGNS)
@pytest.mark.parametrize("chance", [0.0, 0.3], ids=["flowing", "stalled"])
def test_random_traffic_of_asynchronous_jobs_gives_the_same_frames_and_counters(config, engine, chance):
    pair = stalled(Pair(config, engine=engine, seed=6), chance)
    traffic = Traffic(config, seed=int(10 * chance) + 2, workers=3, jobs=2, exchange=pair.exchange)
    traffic.form(0, segments=3, staleness=1, threshold=2, evict_us=3 * SILENCE_TICK_US)
    traffic.form(1, segments=1, staleness=7, threshold=1)
    for us in (0, 30_000, 2**32 - 1_000_000, 2_000_000):
        pair.wait(us)
        traffic.steps(700)
    members_come_and_go(pair, traffic)
    assert sum(pair.model.ages) > 60 and sum(pair.model.ages[1:]) > 10
    assert all(
        pair.model.outcomes[kind]
        for kind in (
            Outcome.ADDED,
            Outcome.CONTROL,
            Outcome.REFUSED,
            Outcome.DUPLICATE,
            Outcome.STALE,
            Outcome.WINDOW,
            Outcome.UNHELD,
            Outcome.TYPE,
        )
    )
    assert pair.model.stats[Stat.EVICTED] and pair.model.stats[Stat.ADMITTED]
    pair.counters_agree()
    pair.close()


def words(config: Config, frames: list[bytes]) -> int:
    return sum(-(-len(frame) // config.bus_bytes) for frame in frames)


@pytest.mark.parametrize(("config", "engine"), DESIGNS)
@pytest.mark.parametrize("chance", [0.0, 0.3], ids=["flowing", "stalled"])
def test_racing_stations_are_switched_as_the_model_does_in_the_order_of_the_trace(config, engine, chance):
    """As many frames at once as a port's queue holds, were they all to leave there."""
    pair = stalled(Pair(config, engine=engine, seed=5), chance)
    rng = np.random.default_rng(int(10 * chance) + 9)
    hosts = Hosts(config, rng)
    for _ in range(120):
        frames: list[tuple[int, bytes]] = []
        while (
            words(config, [frame for _, frame in frames]) < config.queue_words - 2 * 1514 // config.bus_bytes
            and len(frames) < 60
        ):
            frames.append(hosts.frame(int(rng.choice([100, 1514]))))
        pair.burst(frames)
        pair.wait(
            int(
                rng.choice(
                    [0, 1_000, 20_000_000, 150_000_000, 285_000_000, 400_000_000], p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
                )
            )
        )
    outcomes = pair.model.outcomes
    assert all(
        outcomes[kind] > 5
        for kind in (Outcome.ORDINARY, Outcome.FILTERED, Outcome.RESERVED, Outcome.ANSWERED, Outcome.UNANSWERED)
    )
    pair.counters_agree()
    pair.close()


@pytest.mark.parametrize(("config", "engine"), DESIGNS)
@pytest.mark.parametrize("chance", [0.0, 0.2], ids=["flowing", "stalled"])
def test_ordinary_flows_keep_their_bytes_and_their_order_while_sums_go_on(config, engine, chance):
    """Without a model: what arrives is what was sent, at the port of its station and there alone; the sums are
    complete."""
    pair = stalled(Pair(config, engine=engine, seed=5), chance)
    board, ports, rng = pair.board, config.ports, np.random.default_rng(3)
    workers, hosts = joined(board, format=Format.INT32), stations(board, range(ports))
    most = min(8, config.queue_bytes // 2048)
    for turn in range(12):
        rest = int(rng.integers(1, ports))
        sent = {
            port: [
                ordinary(hosts[(port + rest) % ports].mac, hosts[port].mac, int(rng.integers(60, 1515)))
                for _ in range(most)
            ]
            for port in range(ports)
        }
        for k in range(most):
            for worker in workers:
                seq = turn * most + k
                board.send(
                    worker.port,
                    worker.contribution(
                        worker.first_seq + seq,
                        np.full(config.elements, worker.member + seq, np.int32),
                        behind=min(seq, config.window - 1),
                        format=Format.INT32,
                    ),
                )
            for port in range(ports):
                board.send(port, sent[port][k])
        board.run(1_000_000)
        for port in range(ports):
            out = [frame.data for frame in board.receive(port)]
            assert [frame for frame in out if frame[12:14] != b"\x08\0"] == sent[(port - rest) % ports]
            sums = [parse(frame) for frame in out if frame[12:14] == b"\x08\0"]
            assert len(sums) == most * sum(worker.port == port for worker in workers)
            assert all(
                (result.numbers == 6 + 4 * (int(result.header["seq"]) - workers[0].first_seq)).all() for result in sums
            )
    assert not board.violations()
    pair.close()


def rounds(
    pair: Pair, workers: list[Client], count: int, rng: np.random.Generator, fmt: Format, elements: list[int]
) -> None:
    """Up to eight segments from everybody at once, in random order, some twice; as the driver numbers them. More
    results at once than an output queue holds would be dropped there, rightly, and that is not what this is about."""
    window = min(pair.config.window, 8)
    base = workers[0].first_seq
    for begin in range(0, count, window):
        frames = []
        for worker in workers:
            for seq in rng.permutation(np.arange(begin, begin + window)).tolist():
                size = elements[seq % len(elements)]
                frame = worker.contribution(
                    (base + seq) % 2**32, adverse_elements(rng, fmt, size, 0.001), behind=seq - begin, format=fmt
                )
                frames += [(worker.port, frame)] * (2 if rng.random() < 0.05 else 1)
        answers = pair.burst(frames)
        held = {(answer[:6], int.from_bytes(answer[46:50], "little")) for answer in answers if answer[42] & 15 == 1}
        for worker in workers:
            for seq in range(begin, begin + window):
                assert (worker.mac, (base + seq) % 2**32) in held


@pytest.mark.parametrize(("config", "engine"), DESIGNS)
@pytest.mark.parametrize("chance", [0.0, 0.2], ids=["flowing", "stalled"])
@pytest.mark.parametrize("fmt", [Format.WINDOW64, Format.FP32, Format.INT32], ids=lambda f: f.name.lower())
def test_racing_ports_sum_as_the_model_in_the_order_of_the_trace(config, engine, chance, fmt):
    race(config, engine, chance, fmt, format=Format.WINDOW64 if fmt == Format.INT32 else fmt)


@pytest.mark.parametrize(("config", "engine"), HALVES)
@pytest.mark.parametrize("chance", [0.0, 0.2], ids=["flowing", "stalled"])
@pytest.mark.parametrize("fmt", [Format.BF16, Format.FP16], ids=lambda f: f.name.lower())
def test_racing_ports_sum_half_width_elements_as_the_model_and_integers_beside_them(config, engine, chance, fmt):
    race(config, engine, chance, fmt, format=fmt, fraction=30)
    race(config, engine, chance, Format.INT32, format=fmt, fraction=30)


def race(config: Config, engine: str, chance: float, fmt: Format, **settings: int) -> None:
    """Sum elements of `fmt` in a job with these settings."""
    first = -6 * config.window % 2**32
    pair = stalled(Pair(config, engine=engine, seed=seed_for_first_seq(first)), chance)
    workers = [Client.numbered(k, port=k % config.ports) for k in range(config.ports + 1)]
    for turn in range(3):
        for worker in workers:
            asked = settings | {"world": len(workers), "elements": config.elements}
            for answer in pair.exchange(worker.port, worker.join(**({} if turn else asked))):
                worker.take(answer)
    assert workers[0].first_seq == first
    most = config.elements
    sizes = [1, 2, most, most - 1, config.lanes, config.lanes + 1, max(1, config.lanes - 1), most // 2]
    rounds(pair, workers, 12 * min(config.window, 8), np.random.default_rng(3), fmt, sizes)
    pair.counters_agree()
    pair.close()


def test_a_switch_that_forgets_a_frame_is_noticed():
    """The mutant of this bench: a model that was not told of one contribution."""
    pair = Pair(SMALL, seed=5)
    traffic = Traffic(SMALL, seed=1, workers=2, jobs=1, exchange=pair.exchange)
    traffic.form(0)
    worker = traffic.clients[0]
    pair.board.send(worker.port, worker.contribution(worker.first_seq, np.ones(4, np.float32)))
    pair.board.run(5000)
    other = traffic.clients[1]
    with pytest.raises(DivergenceError):
        pair.exchange(other.port, other.contribution(other.first_seq, np.ones(4, np.float32)))


def test_a_station_that_only_one_of_them_knows_is_noticed():
    """Likewise for ordinary frames."""
    pair = Pair(SMALL, seed=5)
    a, b = Client.numbered(1), Client.numbered(2)
    pair.exchange(0, ordinary(b.mac, a.mac))
    pair.model.receive(1, ordinary(a.mac, a.mac), pair.now_us)
    with pytest.raises(DivergenceError):
        pair.exchange(0, ordinary(a.mac, b.mac))


@pytest.mark.parametrize("config", [SMALL, Config()], ids=["64 bits", "256 bits"])
def test_after_a_reset_the_switch_knows_nobody(config):
    """Registers are cleared by a reset, memories are not: of jobs, members and counters nothing may be left."""
    pair = Pair(config, seed=5)
    traffic = Traffic(config, seed=1, workers=3, jobs=2, exchange=pair.exchange)
    for _ in range(3):
        traffic.form(0)
        traffic.form(1, mode=Mode.PROPAGATE, format=Format.FP32)
        traffic.steps(150, odd=0.0)
        pair.reset()
        traffic.steps(30)  # with what the workers know from before
        pair.counters_agree()
        traffic.rebuild(0)
        traffic.steps(100)
        pair.counters_agree()
        pair.reset()
    pair.close()
