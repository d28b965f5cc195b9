"""The driver's end of asynchronous jobs against the golden switch, on a clock of its own: programs that compute for
some time, a network that delays, loses, doubles and overtakes, members that die."""

import heapq
import itertools
import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.driver.claims import PIPELINE_DEPTH, Claims, Vector
from iswitch.driver.membership import Membership
from iswitch.driver.stream import Stream
from iswitch.driver.update_layout import UpdateLayout
from iswitch.golden.decide import random as chance_of_switch
from iswitch.golden.egress import compose
from iswitch.golden.switch import Switch
from iswitch.wire import HEADER, UDP_PORT, Format, Mode, Outcome, Type
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, udp_frame

CONFIG = Config(ports=4, bus_bits=64, members=4, window=4, elements=4)
DELAY_S = 0.0001
ADDRESS_BYTES = 42


@dataclass
class Network:
    """Time, and frames on their way to the switch and back. loss, doubled, late: chances for each frame in each
    direction."""

    loss: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    seed: int = 1
    now: float = 1.0
    nodes: list["Node"] = field(default_factory=list)

    def __post_init__(self):
        self.switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=self.seed)
        self.chance = random.Random(self.seed)
        self.events, self.order = [], itertools.count()
        self.grants = {}  # what the switch said, by base: members

    def at(self, when, what, *arguments):
        heapq.heappush(self.events, (when, next(self.order), what, arguments))

    def carry(self, what, *arguments):
        if self.chance.random() < self.loss:
            return
        for _ in range(1 + (self.chance.random() < self.doubled)):
            late = self.chance.random() < self.late
            self.at(
                self.now + DELAY_S * (1 + self.chance.random() / 10 + late * self.chance.random() * 20),
                what,
                *arguments,
            )

    def deliver(self, port, frame):
        for egress, reply in self.switch.receive(port, frame, int(self.now * 1e6) % 2**32):
            header = np.frombuffer(reply, HEADER, 1, ADDRESS_BYTES)[0]
            if header["version_type"] & 15 == Type.GRANT:
                self.grants[int(header["seq"])] = int(header["members"])
            node = next(node for node in self.nodes if node.client.mac == reply[:6])
            assert node.client.port == egress
            size = int.from_bytes(reply[38:40]) - 8
            self.carry(node.arrive, reply[ADDRESS_BYTES : ADDRESS_BYTES + size])

    def run(self, until, *, most_s=30.0):
        """Until something holds; whether it came to that. Looked at between events."""
        end = self.now + most_s
        while not until():
            if not self.events or self.events[0][0] > end:
                return False
            self.now, _, what, arguments = heapq.heappop(self.events)
            what(*arguments)
        return True


class Node:
    """A worker: a stream, the network card it sees, and a program that computes for `compute_s()` seconds, for ever."""

    def __init__(self, network, rank, *, compute_s, takes=True):
        self.network, self.rank, self.compute_s, self.takes = network, rank, compute_s, takes
        self.client = Client.numbered(rank)
        self.inbox, self.wakes, self.dead, self.pushes = [], itertools.count(1), False, True
        self.updates, self.vectors, self.ready_vector, self.dropped = [], [], None, 0
        network.nodes.append(self)

    def join(self, frame):
        [(_, reply)] = self.network.switch.receive(self.client.port, frame, int(self.network.now * 1e6))
        self.client.take(reply)

    def begin(
        self, size, *, world, staleness, evict_us=0, format=Format.INT32, backlog=None, in_flight=None, **settings
    ):
        self.layout = UpdateLayout(size, CONFIG.elements, world)
        c = self.client
        self.join(c.join())
        membership = Membership(
            job=c.job,
            key=c.key,
            world=world,
            threshold=0,
            format=format,
            fraction=44,
            elements=CONFIG.elements,
            mode=Mode.QUARANTINE,
            nonce=c.nonce,
            wanted=self.rank,
            evict_us=evict_us,
            staleness=staleness,
            segments=self.layout.segments,
            member=c.member,
            token=c.token,
            job_token=c.job_token,
            epoch=c.epoch,
            window=c.window,
            first_seq=c.first_seq,
        )
        self.stream = Stream(self, membership, self.layout, backlog=backlog or staleness + 2, in_flight=in_flight)
        self.generator = np.random.default_rng(self.rank)
        self.wake(0)
        self.compute()

    # As a transport

    def burst_segments(self, segment_bytes):
        return 3

    def now(self):
        return self.network.now

    def send(self, burst, segment_bytes):
        for at in range(0, len(burst), segment_bytes):
            c = self.client
            frame = udp_frame(
                eth_dst=SWITCH_MAC,
                eth_src=c.mac,
                ip_src=c.ip,
                ip_dst=SWITCH_IP,
                udp_src=c.udp_port,
                udp_dst=UDP_PORT,
                payload=bytes(burst[at : at + segment_bytes]),
            )
            self.network.carry(self.network.deliver, c.port, frame)

    def receive(self, into, timeout_s):
        if not self.inbox:
            return 0, 0
        datagram = self.inbox.pop(0)
        into[: len(datagram)] = datagram
        return len(datagram), len(datagram)

    # As a machine

    def arrive(self, datagram):
        self.inbox.append(datagram)
        self.serve()

    def wake(self, number):
        if number == 0 or number == self.awaited:
            self.serve()

    def serve(self):
        if self.dead:
            return
        rest_s = self.stream.serve()
        self.proceed()
        self.awaited = next(self.wakes)
        self.network.at(self.network.now + rest_s, self.wake, self.awaited)

    # As a program

    def compute(self):
        self.apply()
        self.version = self.stream.updates_taken
        self.network.at(self.network.now + self.compute_s(), self.finish)

    def apply(self):
        while self.takes and (arrival := self.stream.take_update()):
            self.updates.append(arrival)

    def finish(self):
        if not self.dead and self.pushes:
            values = self.generator.integers(0, 2**31, self.layout.size, np.int32)
            trailer = self.layout.empty_trailer()
            trailer[self.rank] = self.version, 0, self.rank
            self.ready_vector = Vector(values, trailer, self.version, CONFIG.elements)
            self.ready_vector.values = values
            self.proceed()

    def proceed(self):
        """Push the ready vector if the pipeline has room, and compute again."""
        if self.ready_vector and self.stream.claims.pending < PIPELINE_DEPTH:
            self.vectors.append(self.ready_vector)
            self.stream.submit(self.ready_vector)
            self.ready_vector = None
            self.compute()
        else:
            self.apply()


def job(
    size,
    *,
    world=3,
    staleness=2,
    threshold=2,
    compute_s=None,
    network=None,
    first_seq=None,
    late_s=0,
    seen=0,
    **settings,
):
    """A network with a job that runs. compute_s: for each rank, a time or a function. The last member begins late, and
    receives only the last `seen` frames of those before."""
    network = network or Network()
    times = compute_s or [lambda: 0.001 * network.chance.random()] * world
    nodes = [
        Node(network, rank, compute_s=time if callable(time) else lambda time=time: time)
        for rank, time in enumerate(times)
    ]
    segments = UpdateLayout(size, CONFIG.elements, world).segments
    for node in nodes:
        node.join(
            node.client.join(
                world=world,
                elements=CONFIG.elements,
                format=settings.get("format", Format.INT32),
                threshold=threshold,
                staleness=staleness,
                segments=segments,
                evict_us=settings.get("evict_us", 0),
            )
        )
    for node in nodes:
        node.join(node.client.join())
    for node in nodes[:-1] if late_s else nodes:
        node.begin(size, world=world, staleness=staleness, **settings)
    if late_s:
        nodes[-1].dead = True
        network.at(network.now + late_s, begin_late, nodes[-1], seen, size, {"world": world, "staleness": staleness})
    return network


def begin_late(node, seen, size, settings):
    node.dead = False
    del node.inbox[: len(node.inbox) - seen]
    node.begin(size, **settings)


def check(network, nodes=None):
    """Each granted vector is in one update, once; an update is the sum of its vectors; and all workers have the
    same."""
    nodes = nodes or [node for node in network.nodes if not node.dead]
    several = {
        update: [(node.rank, vector) for node in network.nodes for vector in node.vectors if vector.update == update]
        for update in range(max(len(node.updates) for node in nodes))
    }
    for node in nodes:
        granted = [vector.update for vector in node.vectors if vector.update >= 0]
        assert granted == sorted(set(granted))
        for number, arrival in enumerate(node.updates):
            parts = several[number]
            expected = np.zeros(node.layout.size, np.int32)
            with np.errstate(over="ignore"):
                for _, vector in parts:
                    expected += vector.values
            members = sum(1 << rank for rank, _ in parts)
            assert (arrival.headers["members"] == members).all()
            assert np.array_equal(arrival.sum, expected)
            for rank, vector in parts:
                assert arrival.trailer[rank].tolist() == (vector.version, 0, rank)
                assert number - vector.version <= node.stream.membership.staleness
    return True


def trained(network, goal, **options):
    return network.run(lambda: all(len(node.updates) >= goal or node.dead for node in network.nodes), **options)


BAD = {"loss": 0.05, "doubled": 0.05, "late": 0.05}


@pytest.mark.parametrize("faults", [{}, BAD, {"loss": 0.2}], ids=["sound", "bad network", "lossy"])
@pytest.mark.parametrize("size", [1, 4, 5, 11, 40])
def test_each_granted_vector_is_in_one_update_once_and_updates_are_equal(size, faults):
    network = job(size, network=Network(**faults))
    assert trained(network, 60, most_s=60.0)
    assert check(network)


@pytest.mark.parametrize("faults", [{}, BAD], ids=["sound", "bad network"])
@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_a_member_contributes_and_requests_no_more_than_its_socket_has_room_for(in_flight, faults):
    """`behind` says how far a contribution, or a request for a result, is above the lowest result that is lacked."""
    network = job(40, network=Network(**faults), in_flight=in_flight)
    furthest, asked = 0, 0
    for node in network.nodes:

        def send(burst, segment_bytes, send=node.send):
            nonlocal furthest, asked
            for at in range(0, len(burst), segment_bytes):
                header = np.frombuffer(burst, HEADER, 1, at)[0]
                if header["version_type"] & 15 == Type.CONTRIBUTION:
                    furthest = max(furthest, int(header["behind"]))
                elif header["version_type"] & 15 == Type.RECEIPT:
                    asked = max(asked, int(header["behind"]))
            send(burst, segment_bytes)

        node.send = send
    assert trained(network, 30, most_s=120.0)
    assert check(network)
    assert furthest == in_flight - 1 and asked <= in_flight


@pytest.mark.parametrize(("loss", "most_s"), [(0.05, 0.7), (0.2, 5.0)])
def test_loss_does_not_leave_a_back_off_behind(loss, most_s):
    """With a back-off that lasts until a delay is measured this takes 1 s and 29 s."""
    assert trained(job(40, network=Network(loss=loss)), 60, most_s=most_s)


@pytest.mark.parametrize("staleness", [0, 1, 7])
@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_no_vector_is_older_than_the_staleness_and_the_switch_counts_the_same_ages(staleness, threshold):
    network = job(9, staleness=staleness, threshold=threshold, network=Network(**BAD), compute_s=[0.001, 0.0013, 0.004])
    assert trained(network, 60)
    assert check(network)
    known = sum((node.stream.claims.ages for node in network.nodes), start=type(network.nodes[0].stream.claims.ages)())
    counted = {age: count for age, count in enumerate(network.switch.ages) if count}
    assert max(counted) <= staleness
    assert (
        0 <= sum(counted.values()) - known.total() <= len(network.nodes)
    )  # vectors that wait, or whose GRANT is in flight


@pytest.mark.parametrize("seen", [0, 2, 5])
@pytest.mark.parametrize("threshold", [1, 2])
@pytest.mark.parametrize("size", [3, 40])
def test_a_member_that_is_admitted_after_the_first_results_asks_for_each_without_waiting(size, threshold, seen):
    """A round trip takes 0.2 ms, and the first time-out 50 ms."""
    network = job(size, threshold=threshold, compute_s=[0.001, 0.001, 0.5], late_s=0.02, seen=seen)
    last = network.nodes[-1]
    assert not network.run(lambda: not last.dead, most_s=0.0199)
    held = network.nodes[0].stream.low
    assert held > 0
    assert network.run(lambda: not last.dead and last.stream.low >= held, most_s=0.01)
    assert trained(network, 20) and check(network)


def test_a_slow_worker_does_not_block_the_others_and_contributes_when_they_wait():
    network = job(9, staleness=1, threshold=2, compute_s=[0.001, 0.001, 0.5])
    assert trained(network, 400)
    slow = network.nodes[2]
    assert network.now < 1.0 + 0.9 and slow.stream.claims.ages.total() <= 1
    network.nodes[0].pushes = False  # now two are needed, and two are there
    assert network.run(lambda: slow.stream.claims.ages.total() >= 3)
    assert slow.stream.claims.refused and check(network)


def test_a_vector_computed_ahead_with_refused_weights_is_dropped_too():
    network = job(5, staleness=0, threshold=1, compute_s=[0.0005, 100, 100])
    late = network.nodes[2]
    assert trained(network, 5)
    for _ in range(2):
        late.stream.submit(Vector(np.zeros(5, np.int32), late.layout.empty_trailer(), 0, CONFIG.elements))
    assert network.run(lambda: not late.stream.claims.pending)
    assert late.stream.claims.refused == 2
    late.stream.submit(Vector(np.zeros(5, np.int32), late.layout.empty_trailer(), 0, CONFIG.elements))
    assert late.stream.claims.refused == 3 and not late.stream.claims.pending


def test_a_vector_after_a_refusal_does_not_replace_a_waiting_one():
    network = job(5, threshold=1, compute_s=[100, 0.0005, 100])
    assert trained(network, 2)
    stream, layout = network.nodes[0].stream, network.nodes[0].layout
    first, second, third = (
        Vector(np.full(5, k, np.int32), layout.empty_trailer(), k, CONFIG.elements) for k in range(3)
    )
    stream.submit(first)
    stream.submit(second)
    stream.claims.handle_refusal(1)  # it came while the worker waited for an acknowledgement
    stream.submit(third)
    claims = stream.claims
    assert (claims._claimed, claims._waiting, claims.refused) == (second, third, 1)


@pytest.mark.parametrize("goal", range(1, 40, 6))
@pytest.mark.parametrize("faults", [{}, BAD], ids=["sound", "bad network"])
def test_a_killed_worker_is_evicted_and_the_others_go_on(faults, goal):
    network = job(30, threshold=3, evict_us=100_000, network=Network(**faults, seed=goal))
    network.run(lambda: max(len(node.updates) for node in network.nodes) >= goal)
    network.nodes[1].dead = True
    before = max(len(node.updates) for node in network.nodes)
    assert trained(network, before + 20)
    first, _, third = network.nodes
    both = min(len(first.updates), len(third.updates))
    for ours, theirs in zip(first.updates[:both], third.updates):
        assert (
            ours.sum.tobytes() == theirs.sum.tobytes()
            and ours.headers["members"].tobytes() == theirs.headers["members"].tobytes()
        )
    assert network.switch.counters()["stat.EVICTED"] == 1


def test_an_update_whose_members_have_all_died_changes_nothing_and_blocks_no_worker():
    """The only member granted dies between its GRANT and its first segment."""
    network = job(30, threshold=1, evict_us=100_000, compute_s=[0.001, 10, 10])
    first = network.nodes[0]
    first.stream.send_new = lambda now: None
    assert network.run(lambda: first.stream.claims.granted)
    first.dead = True
    for node in network.nodes[1:]:
        node.compute_s = lambda: 0.001
        node.finish()
    assert network.run(lambda: all(len(node.updates) >= 10 for node in network.nodes[1:]))
    abandoned = network.nodes[1].updates[0]
    assert not abandoned.headers["members"].any() and not abandoned.sum.any() and not abandoned.trailer["version"].any()


def test_a_program_that_takes_no_updates_blocks_the_others_at_the_end_of_the_ring():
    network = job(5, staleness=2, threshold=2, compute_s=[0.001, 0.001, 100], backlog=4)
    idle = network.nodes[2]
    idle.takes = False
    assert not trained(network, 60, most_s=3.0)
    assert idle.stream.updates_ready == 4
    ring = 2 * CONFIG.window // idle.stream.segments + 1
    assert 4 <= len(network.nodes[0].updates) <= 4 + ring + 1
    idle.takes = True
    idle.apply()
    assert trained(network, 60)
    assert check(network)


def test_seq_wraps_in_the_middle_of_an_update(monkeypatch):
    network = Network(**BAD)
    real = chance_of_switch.offer

    def offer(state, slots):
        after, made = real(state, slots)
        return after, made._replace(first_seq=2**32 - 40)

    monkeypatch.setattr(chance_of_switch, "offer", offer)
    job(11, network=network)
    assert network.nodes[0].client.first_seq == 2**32 - 40
    assert trained(network, 40)
    assert check(network)


@pytest.mark.parametrize("format", [Format.WINDOW64, Format.FP32])
def test_a_job_of_floats_has_a_trailer_of_integers(format):
    network = job(11, format=format, threshold=3, compute_s=[1000.0] * 3)
    for node in network.nodes:
        trailer = node.layout.empty_trailer()
        trailer[node.rank] = 0, 0, 2**63 + node.rank
        node.stream.submit(Vector(np.full(11, 2.0**node.rank, np.float32), trailer, 0, CONFIG.elements))
    assert trained(network, 1)
    for node in network.nodes:
        [arrival] = node.updates
        assert arrival.sum.tolist() == [7.0] * 11
        assert arrival.trailer["digest"].tolist() == [2**63 + rank for rank in range(3)]


def test_backlog_must_be_above_the_staleness():
    with pytest.raises(ValueError, match="backlog must be above the staleness, 2, not 2"):
        job(5, staleness=2, backlog=2)


def test_the_pipeline_accepts_no_more_vectors_than_it_holds():
    network = job(5, compute_s=[100] * 3)
    stream, layout = network.nodes[0].stream, network.nodes[0].layout
    for _ in range(PIPELINE_DEPTH):
        stream.submit(Vector(np.zeros(5, np.int32), layout.empty_trailer(), 0, CONFIG.elements))
    with pytest.raises(ValueError, match="the vectors in the pipeline must be below 2, not 2"):
        stream.submit(Vector(np.zeros(5, np.int32), layout.empty_trailer(), 0, CONFIG.elements))


def test_a_vector_with_incomplete_weights_is_rejected():
    network = job(5, compute_s=[100] * 3)
    stream, layout = network.nodes[0].stream, network.nodes[0].layout
    with pytest.raises(ValueError, match="version must be at most 0, the updates that are complete, not 1"):
        stream.submit(Vector(np.zeros(5, np.int32), layout.empty_trailer(), 1, CONFIG.elements))


@pytest.mark.parametrize("token", [0, 1, 2**31])
def test_a_grant_without_the_jobs_token_is_ignored_and_counted(token):
    """A forged GRANT with a far base would make the driver take every genuine one for an old one."""
    network = job(5, compute_s=[0.001] * 2, world=2, staleness=1, threshold=2)
    node = network.nodes[0]
    for far in (10, 1 << 16):
        forged = compose.grant(
            job=0, epoch=node.client.epoch, base=node.stream.seq_of(far), members=3, token=node.client.job_token ^ token
        )
        if token:
            node.arrive(forged)
    assert trained(network, 20) and check(network)
    assert node.stream.forged == (2 if token else 0)


class Forgetful(Network):
    """The first receipt of each member for what it holds is lost."""

    def __post_init__(self):
        super().__post_init__()
        self.acknowledged = set()

    def deliver(self, port, frame):
        header = np.frombuffer(frame, HEADER, 1, ADDRESS_BYTES)[0]
        holds = int(header["member"]), int(header["seq"]) - int(header["behind"])
        if header["version_type"] & 15 != Type.RECEIPT or holds in self.acknowledged:
            super().deliver(port, frame)
        else:
            self.acknowledged.add(holds)


def test_a_claim_whose_receipt_was_lost_is_accepted_when_it_comes_again():
    network = job(5, world=2, staleness=0, threshold=2, network=Forgetful(), compute_s=[0.001] * 2)
    assert trained(network, 50) and check(network)
    assert 50 <= network.switch.outcomes[Outcome.UNHELD] <= 110


def test_an_idle_member_gives_signs_of_life():
    network = job(5, evict_us=100_000, compute_s=[0.001, 0.001, 1000])
    assert trained(network, 300)
    network.run(lambda: False, most_s=1.0)
    assert network.switch.counters()["stat.EVICTED"] == 0


def test_no_member_of_a_halted_job_is_evicted():
    """Who was granted an update sends contributions and nothing else, while others ask for its results."""
    network = job(9, staleness=1, threshold=1, evict_us=100_000, compute_s=[0.001, 0.0012, 0.0015])
    assert trained(network, 20)
    client = network.nodes[0].client
    for on in (True, False):
        network.deliver(client.port, client.halt(on))
        network.run(lambda: False, most_s=1.0 * on)
    assert network.switch.counters()["stat.EVICTED"] == 0
    assert trained(network, 40) and check(network)


# What the checks above are worth: each of these drivers breaks a rule, and is found out.

handle_grant, handle_refusal = Claims.handle_grant, Claims.handle_refusal
send_claim, send_receipts = Claims.send, Stream.send_receipts


def takes_any_grant(claims, base):
    claims._last_granted = -1
    return handle_grant(claims, base)


def keeps_what_was_computed_ahead(claims, number):
    waiting = claims._waiting
    refused = handle_refusal(claims, number)
    claims._waiting, claims.refused_version = waiting, -1
    return refused


def claims_once(claims, now):
    if claims._claimed is None:
        send_claim(claims, now)
        claims.due_at = np.inf


def says_more_than_it_holds(stream, positions, *, want):
    stream.ledger.low += 3
    send_receipts(stream, positions + 3, want=want)
    stream.ledger.low -= 3


MUTANTS = {
    "takes any GRANT that names it": (Claims, "handle_grant", takes_any_grant),
    "claims once": (Claims, "send", claims_once),
    "acknowledges what it lacks": (Stream, "send_receipts", says_more_than_it_holds),
    "asks for nothing": (Stream, "request", lambda stream, positions, now: None),
    "hears no refusal": (Claims, "handle_refusal", lambda claims, number: False),
    "drops what was computed ahead from the books": (Claims, "handle_refusal", keeps_what_was_computed_ahead),
}


def holds(network):
    try:
        trained_well = trained(network, 80, most_s=5.0) and check(network)
        refused = sum(node.stream.claims.refused for node in network.nodes)
        lost = sum(vector.update < 0 for node in network.nodes for vector in node.vectors)
        under_way = sum(node.stream.claims.pending for node in network.nodes)
        return trained_well and refused <= lost <= refused + under_way
    except (AssertionError, KeyError, IndexError, ValueError):
        return False


def lame(seed):
    return job(21, staleness=1, threshold=2, network=Network(**BAD, seed=seed), compute_s=[0.0003, 0.0005, 0.0047])


@pytest.mark.mutant
def test_the_driver_keeps_the_rules_that_its_mutants_break():
    assert all(holds(lame(seed)) for seed in range(4))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_driver_that_breaks_a_rule_is_detected(monkeypatch, name):
    monkeypatch.setattr(*MUTANTS[name])
    assert not all(holds(lame(seed)) for seed in range(4))


@pytest.mark.mutant
def test_mutants_replace_methods_that_exist():
    assert all(hasattr(part, method) for part, method, _ in MUTANTS.values())
