"""Trees of compiled switches, each with the golden one beside it: the same frames, whatever the links do to them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.wire import FRAME_BYTES, SILENCE_TICK_US, Action, Format, JobState, Mode, Outcome, Reason, Stat, Type
from sim.bench.cosimulation import Pair, registers_of
from sim.bench.designs import TREE
from sim.bench.traffic import adverse_elements, adverse_numbers
from sim.bench.tree import BAD, FLAT, OPERATOR_KEY, TREES, Tree, address, facts, frames_as_leaf, spoilt
from sim.emulator.endpoint import FrameEnd
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import PS_PER_US, Faults, Rates
from sim.emulator.link import Link
from sim.emulator.virtual import VirtualTime
from sim.emulator.wire import Wire
from sim.frames.client import Client, Reply

SMALL = TREE
WIDE = Config(ports=4, bus_bits=256, members=8, window=2, elements=352)
DESIGNS = [pytest.param(SMALL, id="64-bit"), pytest.param(WIDE, id="256-bit", marks=pytest.mark.slow)]


@contextmanager
def compiled(shape, config, **options) -> Iterator[Tree]:
    """A tree of pairs. Each frame that a board sends, and at the end each counter, is its model's."""
    tree = Tree(shape, config=config, switch=Pair, **options)
    try:
        yield tree
        for pair in tree.switches:
            pair.counters_agree()
    finally:
        for pair in tree.switches:
            pair.close()


def payloads(segments, elements=16, world=8, seed=1):
    rng = np.random.default_rng(seed)
    return adverse_numbers(rng, world * segments * elements, 0.01).reshape(world, segments, elements)


@pytest.mark.parametrize("config", DESIGNS)
@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_a_tree_of_compiled_switches_sums_as_one_switch_does(shape, rates, config):
    numbers = payloads(10)
    with compiled(shape, config, seed=seed_for_first_seq(2**32 - 4), **rates) as tree:
        found = tree.join().reduce(numbers)
        tree.agree()
    flat = Tree(FLAT, config=config).join().reduce(numbers)
    assert facts(found) == facts(flat)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("format", [Format.WINDOW64, Format.FP32, Format.INT32])
def test_every_format_and_both_modes(format, mode):
    numbers = payloads(8, seed=2)
    with compiled(TREES["uneven, a worker at the root"], SMALL, **BAD) as tree:
        tree.join(format=format, mode=mode).reduce(numbers)
        tree.reduce(numbers[:, :2], start=8, format=Format.INT32)
        tree.agree()


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("format", [Format.BF16, Format.FP16])
def test_half_width_sums_go_up_unrounded_and_come_down_as_the_root_rounded_them(format, rates):
    """Beside integers, which have four bytes, and with a worker at the root."""
    config = replace(SMALL, half_width=True)
    halves = adverse_elements(np.random.default_rng(6), format, 8 * 8 * 16, 0.01).reshape(8, 8, 16)
    with compiled(TREES["uneven, a worker at the root"], config, **rates) as tree:
        found = tree.join(format=format, fraction=30).reduce(halves)
        tree.reduce(payloads(8, seed=2)[:, :2], start=8, format=Format.INT32)
        tree.agree()
    flat = Tree(FLAT, config=config).join(format=format, fraction=30).reduce(halves)
    assert facts(found) == facts(flat)


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_departures_everywhere_down_to_the_last(shape, rates):
    with compiled(shape, SMALL, seed=11, **rates) as tree:
        tree.join()
        for rank in range(8):
            tree.send(
                rank,
                tree.clients[rank].contribution(
                    tree.clients[rank].first_seq + rank % 2, payloads(1)[rank, 0], behind=rank % 2
                ),
            )
        for rank, client in enumerate(tree.clients):
            number = client.number + 1
            tree.gone.add(rank)
            for _ in range(60):
                tree.send(rank, client.leave(seq=number))
                if any(reply.ack is not None and reply.ack["action"] == Action.LEAVE for reply in tree.log[rank]):
                    break
            else:
                raise AssertionError(f"nobody lets {rank} go")
            if rank in (1, 4, 6):
                tree.reduce(payloads(6, seed=rank), start=6 * (1, 4, 6).index(rank))
        assert [pair.model.jobs[0].state for pair in tree.switches] == [JobState.NONE] * len(tree.switches)


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
def test_a_reset_of_the_root_and_the_end_of_the_job_reach_the_leaves(rates):
    with compiled(TREES["uneven, a worker at the root"], SMALL, **rates) as tree:
        tree.join().reduce(payloads(6))
        old, number = tree.clients[3].epoch, tree.clients[3].number + 1
        while tree.switches[0].model.jobs[0].epoch == old:
            tree.send(3, tree.clients[3].reset(seq=number))
        tree.follow(old, payloads(1)[:, 0])
        tree.reduce(payloads(6, seed=3))
        while tree.switches[0].model.jobs[0].state != JobState.NONE:
            tree.send(3, tree.clients[3].end_job())
        for _ in range(20):
            for rank, client in enumerate(tree.clients):
                tree.network.now_us += 1000
                tree.send(rank, client.contribution(client.first_seq + 6, payloads(1)[rank, 0]))
        assert [pair.model.jobs[0].state for pair in tree.switches] == [JobState.NONE] * 3


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
def test_a_leaf_that_restarts_or_whose_link_was_down_gets_its_workers_back_in(rates):
    """The others go on without it, the root evicts it. Then a worker below a leaf resets the job, and another program
    takes a worker's place. Each time the tree begins one epoch. On bad links it begins one more for each worker that
    the leaf has evicted meanwhile."""
    most = 1 + 4 * bool(rates)
    numbers = payloads(4)
    flat = facts(Tree(FLAT, config=SMALL).join().reduce(numbers))
    with compiled(TREES["two leaves"], SMALL, **rates) as tree:
        tree.join(evict_us=5_000_000).reduce(numbers)
        for restarts in (True, False):
            epoch = tree.clients[4].epoch
            if restarts:
                tree.restart(1).close()
                for rank in range(4):
                    tree.clients[rank].forget(90_000 + rank)
            evicted = tree.switches[0].model.counters()["stat.EVICTED"]
            while tree.switches[0].model.counters()["stat.EVICTED"] == evicted:  # nothing comes from the leaf
                tree.network.now_us += 1_000_000
                for rank in range(4, 8):
                    client = tree.clients[rank]
                    tree.send(rank, client.contribution(client.first_seq + 4, numbers[rank, 0], behind=0))
            assert 0 < (tree.come_back(epoch) - epoch) % 2**16 <= most
            assert tree.told_renewed(range(8)) == [1] * 8
            assert facts(tree.reduce(numbers)) == flat
        epoch, client, number = tree.clients[0].epoch, tree.clients[0], tree.clients[0].number + 1
        while tree.switches[0].jobs[0].epoch == epoch:
            tree.send(0, client.reset(seq=number))
        assert 0 < (tree.come_back(epoch) - epoch) % 2**16 <= most
        epoch = tree.clients[0].epoch
        tree.clients[0].forget(90_010)  # another program at the same address
        assert 0 < (tree.come_back(epoch) - epoch) % 2**16 <= most
        assert facts(tree.reduce(numbers)) == flat
        tree.agree()


def test_no_worker_passes_for_a_switch_of_a_tree_with_an_operator_key():
    """Worker 3, at the root, names its rank; worker 0 knows nonce and token of its leaf."""
    payloads_of_all = payloads(4)
    with compiled(TREES["uneven, a worker at the root"], SMALL, operator_key=OPERATOR_KEY) as tree:
        worker, root = tree.clients[3], tree.switches[0]
        worker.ranks = 1 << 3
        for key in (0, OPERATOR_KEY ^ 1):
            tree.send(3, worker.join(world=8, elements=16, operator_key=key))
        assert {reply.reason for reply in tree.log[3]} == {Reason.OPERATOR_KEY}
        worker.ranks = 0
        tree.join(operator_key=0)
        uplink = worker.frame(Type.UPLINK, bytes(8 * 16 + 12), seq=worker.first_seq, format_flags=Format.FIXED64)
        tree.send(3, uplink)
        assert root.model.outcomes[Outcome.TYPE] == 1
        leaf = next(end[1] for end, far in tree.network.peers.items() if end[0] == 0 and far[0] == tree.homes[0])
        before = root.jobs[0]
        for frame in frames_as_leaf(tree, 0):
            root.receive(leaf, frame, tree.network.now_us)
            assert root.jobs[0] == before
        found = tree.reduce(payloads_of_all)
        tree.agree()
    assert facts(found) == facts(Tree(FLAT, config=SMALL).join().reduce(payloads_of_all))


def test_the_operator_key_goes_to_the_parent_only():
    key = OPERATOR_KEY.to_bytes(8, "little")
    with compiled(TREES["three levels"], SMALL, operator_key=OPERATOR_KEY) as tree:
        sent: list[tuple[int, int, bytes]] = []

        def listening(number, receive):
            def receive_and_note(port, frame, *time):
                answers = receive(port, frame, *time)
                sent.extend((number, leaves, answer) for leaves, answer in answers)
                return answers

            return receive_and_note

        for number, pair in enumerate(tree.switches):
            pair.receive = listening(number, pair.receive)
        tree.join().reduce(payloads(4))
        reader = Client.numbered(99, port=3)
        for number, pair in enumerate(tree.switches):
            reader.switch_mac, reader.switch_ip = address(number)
            for row in registers_of(SMALL):
                pair.receive(3, reader.read(row), tree.network.now_us)
            pair.receive(3, reader.end_job(key=1), tree.network.now_us)
        for rank, client in enumerate(tree.clients):
            tree.send(rank, client.reset())
            for _ in range(4):
                tree.send(rank, client.leave(seq=client.number + 1))
    found = [(number, port, frame) for number, port, frame in sent if key in frame or key[:4] in frame[FRAME_BYTES:]]
    assert {number for number, _, _ in found} == {1, 2, 3}
    for _, port, frame in found:
        assert (port, frame[42] & 0xF, frame[FRAME_BYTES]) == (0, Type.CONTROL, Action.JOIN)


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
def test_deadlines_and_the_silent_are_the_models_affair_too(rates):
    """A leaf's slot closes without a worker that came late, another's without one that has been evicted."""
    with compiled(TREES["three levels"], SMALL, **rates) as tree:
        tree.join(deadline_us=500, evict_us=2 * SILENCE_TICK_US).reduce(payloads(4))
        tree.gone |= {0, 5}
        for turn in range(4):
            tree.network.now_us += 600 if turn % 2 else 3 * SILENCE_TICK_US
            busy = [rank for rank in range(8) if rank not in tree.gone]
            for _ in range(40):
                tree.network.now_us += 200
                for rank in busy:
                    tree.send(
                        rank,
                        tree.clients[rank].contribution(
                            tree.clients[rank].first_seq + 4 + turn, payloads(8)[rank, turn]
                        ),
                    )
        tree.agree()
        assert sum(pair.model.stats[Stat.EVICTED] for pair in tree.switches) >= 1


@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_receipts_go_up_and_results_open_slots(shape):
    """With a root that is told to complete early; the leaves' slots are found on the lap before, or open."""
    with compiled(shape, SMALL, **BAD) as tree:
        tree.join()
        rng = np.random.default_rng(1)
        for turn in range(12):
            for rank in rng.permutation(8):
                client = tree.clients[rank]
                lacked = next(s for s in range(99) if (client.first_seq + s) % 2**32 not in tree.held[rank])
                seq = client.first_seq + lacked + int(rng.integers(0, 2))
                behind, want = seq - client.first_seq - lacked, bool(rng.integers(0, 2))
                tree.send(rank, client.receipt(seq, behind=behind, want=want))
                if rank % 3 or turn % 3 == 2:
                    tree.send(
                        rank, client.contribution(seq, payloads(1)[rank, 0], behind=behind, flags=2 * (seq % 3 == 2))
                    )
                if turn % 2 and not rank % 2:
                    tree.send(rank, client.fbcast(seq))
        tree.agree()


@pytest.mark.parametrize("seed", range(3))
def test_spoilt_frames_between_switches_are_judged_as_the_model_does(seed):
    """Whatever passed a link comes once more, changed, by its own port or by another. The tree itself may then come to
    nothing."""
    rng = np.random.default_rng(seed)
    with compiled(TREES["three levels"], SMALL, seed=seed, **BAD) as tree:
        passed: list[tuple[int, int, bytes]] = []
        for k, pair in enumerate(tree.switches):
            pair.receive = lambda port, frame, now_us, k=k, receive=pair.receive: (
                passed.append((k, port, frame)),
                receive(port, frame, now_us),
            )[1]
        tree.join().reduce(payloads(6, seed=seed))
        seen = passed.copy()
        for turn in range(1500):
            k, port, frame = seen[int(rng.integers(0, len(seen)))]
            tree.network.now_us += int(rng.choice([1, 200]))
            for _, answer in tree.switches[k].receive(
                port if rng.random() < 0.9 else 3, spoilt(frame, rng), tree.network.now_us
            ):
                if turn % 3 == 0 and answer[0] == 2 and answer[5] <= 4 and answer[6:12] != answer[:6]:
                    seen.append((k, port, answer))
        outcomes = np.sum([pair.model.outcomes for pair in tree.switches], axis=0)
        assert all(
            outcomes[kind]
            for kind in (Outcome.MEMBER, Outcome.PORT, Outcome.ADDRESS, Outcome.TYPE, Outcome.TOKEN, Outcome.FORMAT)
        )


class Worker:
    """A worker at the end of a cable in virtual time: repeats every `PERIOD` what it has no answer to."""

    PERIOD = 400 * PS_PER_US

    def __init__(self, rank: int, home: int, numbers: np.ndarray, time_of: VirtualTime, end: FrameEnd):
        self.client, self.numbers, self.time, self.end = Client.numbered(rank), numbers, time_of, end
        self.client.ranks = 1 << rank
        self.client.switch_mac, self.client.switch_ip = address(home)
        self.held: dict[int, Reply] = {}
        self.runs = False
        end.arrived = self.arrived
        time_of.call_at(rank * PS_PER_US, self.repeat)

    def lacked(self) -> list[int]:
        return [s for s in range(len(self.numbers)) if (self.client.first_seq + s) % 2**32 not in self.held]

    def repeat(self) -> None:
        if not self.runs:
            self.end.send(self.client.join(world=8, elements=self.numbers.shape[1]))
        elif not self.lacked():
            return
        else:
            self.contribute(self.lacked())
        self.time.call_at(self.time.now_ps + self.PERIOD, self.repeat)

    def contribute(self, lacked: list[int]) -> None:
        for s in (s for s in lacked if s < lacked[0] + self.client.window):
            self.end.send(self.client.contribution(self.client.first_seq + s, self.numbers[s], behind=s - lacked[0]))

    def arrived(self) -> None:
        for frame in self.end.receive():
            if frame[:6] == self.client.mac:
                reply = self.client.take(frame)
                self.runs |= (
                    reply.ack is not None and not reply.ack["reason"] and reply.ack["state"] == JobState.RUNNING
                )
                if reply.type == Type.RESULT:
                    old = self.held.setdefault(int(reply.header["seq"]), reply)
                    assert facts([old]) == facts([reply])


@pytest.mark.parametrize("loss", [0, 0.05], ids=["perfect", "bad"])
def test_a_fabric_of_three_switches_sums_to_the_bits_of_one(loss):
    """Eight workers at two leaves; every cable loses frames in both directions, those between switches and those to
    workers."""
    numbers = payloads(40, seed=4)
    rates = Rates(loss=loss, duplicate=loss, reorder=loss, delay_us=2)
    with ExitStack() as stack:
        boards = [stack.enter_context(Board(SMALL, mac=address(k)[0], ip=address(k)[1], seed=k + 1)) for k in range(3)]
        for leaf, ranks in ((1, 0x0F), (2, 0xF0)):
            mac, ip = address(0)
            boards[leaf].parent(0, port=0, mac=mac, ip=ip, ranks=ranks)
        fabric = stack.enter_context(Fabric(boards, [Link((leaf, 0), (0, leaf), 10**10, rates) for leaf in (1, 2)]))
        homes, ends = [1 + rank // 4 for rank in range(8)], [FrameEnd() for _ in range(8)]
        for rank, (home, end) in enumerate(zip(homes, ends)):
            cables = [Wire(Faults(rates, seed=rank, port=rank, direction=way)) for way in ("rx", "tx")]
            fabric.plug((home, 1 + rank % 4), end, inbound=cables[0], outbound=cables[1])
        time_of = VirtualTime(fabric)
        workers = [Worker(rank, home, numbers[rank], time_of, end) for rank, (home, end) in enumerate(zip(homes, ends))]
        time_of.run(2 * 10**12)
        assert [worker.lacked() for worker in workers] == [[]] * 8
    flat = facts(Tree(FLAT, config=SMALL).join().reduce(numbers))
    for worker in workers:
        assert facts([worker.held[(worker.client.first_seq + s) % 2**32] for s in range(40)]) == flat
