"""Trees of golden switches against the flat golden switch and against exact arithmetic, over perfect and bad links."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.golden.egress import compose
from iswitch.golden.ingress.parse import parse
from iswitch.golden.interface.message import Message, SwitchAddress
from iswitch.golden.network import Network
from iswitch.golden.numeric import lane, window64
from iswitch.golden.tree_switch import Parent, TreeSwitch, parse_uplink
from iswitch.wire import (
    BROADCAST_MEMBER,
    HEADER,
    NO_MEMBER,
    SILENCE_TICK_US,
    SILENCE_TICKS_MAX,
    UDP_PORT,
    UPLINK_TAIL,
    VERSION,
    Action,
    Collective,
    CollectiveKind,
    ContributionFlag,
    Format,
    JobState,
    Mode,
    Outcome,
    Reason,
    ResultFlag,
    Type,
    ones_complement_sum,
)
from sim.bench.oracle import NAN, nearest_half, patterns, window64_sum
from sim.bench.tree import BAD, FLAT, OPERATOR_KEY, TREES, Tree, address, facts, frames_as_leaf
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, udp_frame
from sim.frames.client import parse as parse_reply


def adverse(rng, world, segments, size=16, limit=141):
    """Near the limit of the range, cancelling, subnormal, both zeros, far apart, ties."""
    payloads = patterns(rng, world * segments * size, limit - 60, limit).reshape(world, segments, size)
    payloads[:, :, 0] = (limit - 1 << 23) | 0x7FFFFF
    payloads[:, :, 1] = np.where(np.arange(world) % 2, payloads[:, :, 0].T, payloads[:, :, 0].T | 1 << 31).T
    payloads[:, :, 2] = 1 << 31
    payloads[:, :, 3] = rng.integers(0, 1 << 23, (world, segments))
    half = world // 2
    payloads[half : 2 * half, :, -4:] = payloads[:half, :, -4:] ^ 1 << 31
    return payloads


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
@pytest.mark.parametrize("numbers", ["normal", "adverse"])
def test_a_tree_gives_the_bits_of_one_switch_and_of_exact_fractions(shape, rates, numbers):
    rng = np.random.default_rng(3)
    payloads = (
        adverse(rng, 8, 12)
        if numbers == "adverse"
        else (rng.standard_normal((8, 12, 16)) * 10.0 ** rng.integers(-12, 3, (8, 12, 16)))
        .astype(np.float32)
        .view(np.uint32)
    )
    tree = Tree(shape, **rates).join()
    found = tree.reduce(payloads)
    tree.agree()
    flat = Tree(FLAT).join().reduce(payloads)
    assert facts(found) == facts(flat)
    for s, reply in enumerate(found):
        assert reply.numbers.tolist() == [window64_sum(column, 44) for column in payloads[:, s].T.tolist()]
        assert (reply.header["members"], reply.header["member"]) == (255, BROADCAST_MEMBER)


@pytest.mark.parametrize("format", [Format.BF16, Format.FP16])
@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_a_tree_rounds_a_half_width_sum_once_at_the_root(shape, format):
    rng, fraction = np.random.default_rng(5), 40
    numbers = (rng.standard_normal((8, 6, 16)) * 10.0 ** rng.integers(-4, 4, (8, 6, 16))).astype(np.float32)
    if format == Format.BF16:
        payloads = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        values = (payloads.astype(np.uint32) << 16).view(np.float32)
    else:
        payloads, values = numbers.astype(np.float16).view(np.uint16), numbers.astype(np.float16)
    found = Tree(shape, **BAD).join(format=format, fraction=fraction).reduce(payloads, format=format)
    assert facts(found) == facts(Tree(FLAT).join(format=format, fraction=fraction).reduce(payloads, format=format))
    scale = Fraction(2) ** fraction
    for s, reply in enumerate(found):
        sums = [sum(round(Fraction(float(x)) * scale) for x in column) / scale for column in values[:, s].T]
        assert reply.numbers.tolist() == [nearest_half(total, format) for total in sums]


def test_an_uplink_has_as_many_elements_as_a_half_width_contribution_can_have():
    tree = Tree(TREES["two leaves"]).join(format=Format.BF16)
    root, leaf = tree.switches[0], tree.switches[1]
    for count, outcome in ((3, Outcome.LENGTH), (0, Outcome.LENGTH), (18, Outcome.LENGTH), (16, Outcome.ADDED)):
        message = uplink_of(leaf, root, count)
        assert root.handle_message(message, 0)[0] == outcome


def uplink_of(leaf, root, count):
    """Return an UPLINK of zeros from a leaf to its root."""
    tail = np.zeros(1, UPLINK_TAIL)
    tail["ranks"] = 15
    entry = root.jobs[0].entries[0]
    return Message(
        Type.UPLINK,
        entry.source,
        0,
        root.jobs[0].epoch,
        root.jobs[0].first_seq,
        0,
        0,
        Format.FIXED64,
        0,
        entry.token,
        bytes(8 * count) + tail.tobytes(),
    )


@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_sequence_numbers_wrap_at_every_switch(shape):
    payloads = adverse(np.random.default_rng(10), 8, 12)
    tree = Tree(shape, seed=seed_for_first_seq(2**32 - 8), **BAD).join()
    assert {client.first_seq for client in tree.clients} == {2**32 - 8}
    found = tree.reduce(payloads)
    tree.agree()
    assert [reply.numbers.tolist() for reply in found] == [
        [window64_sum(column, 44) for column in payloads[:, s].T.tolist()] for s in range(12)
    ]


def test_receipts_go_up_with_the_lowest_acknowledgement_of_the_members():
    tree = Tree().join()
    root, leaf, first = tree.switches[0].jobs[0], tree.switches[1], tree.clients[0].first_seq
    seat = next(m for m, entry in enumerate(root.entries) if entry.ranks == 0x0F)
    for rank, behind, known in ((0, 0, 0), (1, 1, 0), (2, 0, 0), (3, 0, 1), (1, 0, 2)):
        tree.send(rank, tree.clients[rank].receipt(first + 2, behind=behind))
        assert tree.switches[0].jobs[0].ring.acknowledged[seat] == (first + known) % 2**32
    assert leaf.counters()["outcome.RECEIPT"] == tree.switches[0].counters()["outcome.RECEIPT"] == 5


@pytest.mark.mutant
def test_mutant_that_rounds_at_each_switch_is_found(monkeypatch):
    def rounded(format, stored):
        return window64.to_fixed(window64.from_fixed(stored.accumulator, 44), 44, 255)[0]

    payloads = adverse(np.random.default_rng(3), 8, 12)
    exact = [[window64_sum(column, 44) for column in payloads[:, s].T.tolist()] for s in range(12)]
    monkeypatch.setattr(lane, "uplink", rounded)
    found = Tree().join().reduce(payloads)
    assert np.mean([reply.numbers.tolist() for reply in found] != np.array(exact)) > 0.05


@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
@pytest.mark.parametrize("start", ["job", "slot"])
def test_int32_goes_up_in_four_bytes_an_element(shape, start):
    payloads = np.random.default_rng(4).integers(0, 2**32, (8, 5, 16), dtype=np.uint32)
    tree = Tree(shape, **BAD).join(**({"format": Format.INT32} if start == "job" else {}))
    found = tree.reduce(payloads, format=Format.INT32)
    assert [reply.numbers.tolist() for reply in found] == payloads.sum(axis=0, dtype=np.uint32).tolist()


def test_fp32_adds_partial_sums():
    payloads = np.random.default_rng(5).standard_normal((8, 1, 16)).astype(np.float32)
    tree = Tree().join(format=Format.FP32)
    (found,) = tree.reduce(payloads.view(np.uint32), format=Format.FP32)
    assert np.allclose(found.numbers.view(np.float32), payloads[:, 0].sum(axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
@pytest.mark.parametrize("mode", [Mode.QUARANTINE, Mode.PROPAGATE])
@pytest.mark.parametrize("bad", [(1,), (0, 1, 2, 3), tuple(range(8))], ids=["one", "four", "all"])
def test_tainted_contributions_are_named_by_rank_at_every_switch(shape, mode, bad):
    payloads = adverse(np.random.default_rng(6), 8, 3)
    payloads[bad, 1, 5] = 0x7F800000
    tree = Tree(shape).join(mode=mode)
    found = tree.reduce(payloads)
    tree.agree()
    assert facts(found) == facts(Tree(FLAT).join(mode=mode).reduce(payloads))
    assert found[1].header["tainted"] == sum(1 << rank for rank in bad)
    if mode == Mode.PROPAGATE:
        assert found[1].numbers[5] == NAN
        assert found[1].header["members"] == 255
    else:
        assert found[1].header["members"] == 255 & ~sum(1 << rank for rank in bad)
        assert found[1].flags & ResultFlag.PARTIAL


def test_an_uplink_is_what_the_protocol_says():
    tree = Tree()
    seen, root = [], tree.switches[0]
    receive = root.receive
    root.receive = lambda port, frame, now_us: seen.append(frame) or receive(port, frame, now_us)
    tree.join().reduce(np.full((8, 1, 16), 0x3F800000, np.uint32))
    uplinks = [frame for frame in seen if frame[42] & 0xF == Type.UPLINK]
    assert len(uplinks) == 2
    for frame, ranks in zip(sorted(uplinks, key=lambda frame: frame[-12]), (0x0F, 0xF0), strict=True):
        header, tail = (
            np.frombuffer(frame, HEADER, 1, 42)[0],
            np.frombuffer(frame[-UPLINK_TAIL.itemsize :], UPLINK_TAIL, 1)[0],
        )
        assert (int(header["format_flags"]), int(header["count"]), int(header["members"]), int(header["behind"])) == (
            4,
            0,
            0,
            0,
        )
        assert (len(frame), int(tail["ranks"]), int(tail["tainted"]), int(tail["flags"])) == (
            64 + 8 * 16 + UPLINK_TAIL.itemsize,
            ranks,
            0,
            0,
        )
        assert np.frombuffer(frame, "<i8", 16, 64).tolist() == [4 << 44] * 16
        assert ones_complement_sum(frame[42:]) == 0xFFFF


def test_the_model_sends_and_reads_the_vector_typed_by_hand():
    text = (Path(__file__).parents[2] / "vectors/uplink.hex").read_text(encoding="utf-8")
    vector = bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))
    numbers = np.array([2 << 44, -(3 << 43)])
    payload = compose.uplink(
        job=1,
        epoch=0x1234,
        seq=0x89ABCDEC,
        member=1,
        token=0xCAFEBABF,
        format=Format.FIXED64,
        flags=ContributionFlag.RETRANSMISSION,
        behind=3,
        ranks=0b1001,
        tainted=0b10,
        partial=True,
        elements=numbers,
        collective=Collective(1234, CollectiveKind.ALLREDUCE, 3).word,
        digest=0x5A17,
    )
    parent = Parent(0, *address(0), ranks=0b1011)
    assert compose.frame(SwitchAddress(*address(1)), parent.source, payload) == vector
    message = parse(5, vector, SWITCH_IP, TreeSwitch.types)
    assert (message.type, message.behind, message.token) == (Type.UPLINK, 3, 0xCAFEBABF)
    assert Collective.from_word(message.collective) == (1234, CollectiveKind.ALLREDUCE, 3) and message.digest == 0x5A17
    assert parse_uplink(message).elements.tolist() == numbers.tolist()
    assert parse_uplink(message)[1:] == (ResultFlag.PARTIAL, 0b1001, 0b10)


def test_no_member_is_told_that_the_job_runs_before_all_ranks_are_live():
    tree = Tree()
    for _ in range(4):
        for rank, client in enumerate(tree.clients[:7]):
            tree.send(rank, client.join(world=8, elements=16))
    assert not any(tree.running(rank) for rank in range(8))
    one = tree.clients[0]
    tree.send(0, one.contribution(one.first_seq, np.ones(16, np.float32)))
    assert tree.switches[1].counters()["outcome.FORMING"] == 1
    tree.join()
    assert len({(client.epoch, client.first_seq) for client in tree.clients}) == 1
    assert {client.epoch for client in tree.clients} == {tree.switches[0].jobs[0].epoch}


@pytest.mark.parametrize(
    ("rank", "ranks", "reason"),
    [(1, 1 << 0, Reason.MEMBER), (1, 1 << 4, Reason.MEMBER), (4, 1 << 0, Reason.MEMBER)],
    ids=["taken", "of another leaf", "of another leaf too"],
)
def test_a_rank_has_one_place(rank, ranks, reason):
    tree = Tree()
    for _ in range(2):
        tree.send(0, tree.clients[0].join(world=8, elements=16))
    tree.clients[rank].ranks = ranks
    for _ in range(2):
        tree.send(rank, tree.clients[rank].join(world=8, elements=16))
    assert tree.log[rank][-1].reason == reason


@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_a_worker_that_asks_for_its_rank_need_not_state_it(shape):
    """The Joins come from a driver that knows of no trees."""
    payloads = adverse(np.random.default_rng(10), 8, 2)
    tree = Tree(shape)
    for rank, client in enumerate(tree.clients):
        client.ranks, client.member = 0, rank
    found = tree.join().reduce(payloads)
    assert [client.member for client in tree.clients] == list(range(8))
    assert facts(found) == facts(Tree(FLAT).join().reduce(payloads))


def test_a_leaf_gives_the_ranks_that_belong_below_it():
    tree = Tree()
    for client in tree.clients:
        client.ranks = 0
    tree.join()
    assert [client.member for client in tree.clients] == list(range(8))


@pytest.mark.parametrize("member", [0, 2, NO_MEMBER])
def test_a_rank_below_a_leaf_is_given_to_no_other_member(member):
    """At the root, whose index 0 is the leaf with the ranks 0, 2, 4, 5 and 7, by asking for it or by asking for any."""
    tree = Tree(TREES["uneven, a worker at the root"])
    for _ in range(4):
        for rank in (0, 2, 4, 5, 7):
            tree.send(rank, tree.clients[rank].join(world=8, elements=16))
    client = tree.clients[3]
    client.ranks = 0
    for _ in range(2):
        tree.send(3, client.join(member=member, world=8, elements=16))
    assert tree.log[3][-1].reason == (Reason.DONE if member == NO_MEMBER else Reason.MEMBER)
    assert client.member == (1 if member == NO_MEMBER else NO_MEMBER)


def test_a_silent_member_yields_each_of_its_ranks():
    """Unknown hosts that join the root with ranks of both leaves and fall silent do not keep the tree from forming."""
    tree = Tree()
    for number, member in enumerate((1, 3, 6)):
        tree.network.hosts[0, 3] = lambda frame: None
        unknown_host = Client.numbered(90 + number, port=3)
        unknown_host.challenge = tree.switches[0].jobs[0].challenge
        tree.network.send((0, 3), unknown_host.join(member=member, world=8, elements=16))
    assert tree.switches[0].jobs[0].live == 0b1001010
    tree.network.now_us += SILENCE_TICKS_MAX * SILENCE_TICK_US
    tree.join()
    assert {client.epoch for client in tree.clients} == {tree.switches[0].jobs[0].epoch}


@pytest.mark.parametrize(
    ("settings", "reason"), [({"threshold": 7}, Reason.THRESHOLD), ({"elements": 181}, Reason.ELEMENTS)]
)
def test_a_leaf_refuses_what_a_tree_cannot_do(settings, reason):
    tree = Tree(config=Config(ports=8, members=8, window=2, elements=352))
    tree.send(0, tree.clients[0].join(**{"world": 8, "elements": 180} | settings))
    assert tree.log[0][-1].reason == reason
    tree.send(0, tree.clients[0].join(world=8, elements=180))
    assert tree.log[0][-1].reason == Reason.DONE


def test_what_the_parent_refuses_the_leaf_refuses():
    tree = Tree()
    other = Client.numbered(99, port=2)
    tree.network.hosts[0, 2] = lambda frame: None
    other.challenge = tree.switches[0].jobs[0].challenge
    tree.network.send(
        (0, 2), other.join(world=2, elements=16)
    )  # a job of this number is there already, with another world
    for _ in range(4):
        for rank in range(4):
            tree.send(rank, tree.clients[rank].join(world=8, elements=16))
    assert [tree.log[rank][-1].reason for rank in range(4)] == [Reason.WORLD] * 4


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_departures_anywhere_let_the_others_continue(shape, rates):
    payloads = adverse(np.random.default_rng(8), 8, 24)
    tree = Tree(shape, **rates).join()
    tree.reduce(payloads[:, :4])
    for count, rank in enumerate((0, 1, 2, 3, 5, 6, 7)):
        client, last = tree.clients[rank], tree.log[rank]
        number = client.number + 1
        tree.gone.add(rank)
        for _ in range(60):
            tree.send(rank, client.leave(seq=number))
            if any(reply.ack is not None and reply.ack["action"] == Action.LEAVE for reply in last):
                break
        else:
            raise AssertionError(f"nobody lets {rank} go")
        part = payloads[:, 4 + 2 * count : 6 + 2 * count]
        found = tree.reduce(part, start=4 + 2 * count)
        left = [r for r in range(8) if r not in tree.gone]
        for s, reply in enumerate(found):
            assert (int(reply.header["members"]), reply.flags & ResultFlag.PARTIAL) == (sum(1 << r for r in left), 0)
            assert reply.numbers.tolist() == [window64_sum(column, 44) for column in part[left, s].T.tolist()]
    tree.agree()


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
def test_a_reset_of_the_root_reaches_every_leaf(rates):
    shape = TREES["uneven, a worker at the root"]
    payloads = adverse(np.random.default_rng(9), 8, 6)
    tree = Tree(shape, **rates).join()
    tree.reduce(payloads)
    old, number = tree.clients[3].epoch, tree.clients[3].number + 1
    while tree.switches[0].jobs[0].epoch == old:
        tree.send(3, tree.clients[3].reset(seq=number))
    tree.follow(old, payloads[:, 0])
    tree.reduce(payloads)
    tree.agree()


def test_a_leaf_that_its_parent_does_not_know_tells_its_members():
    tree = Tree().join()
    root = Client.numbered(99, port=2)
    tree.network.hosts[0, 2] = lambda frame: None
    root.challenge = tree.switches[0].jobs[0].challenge
    tree.network.send((0, 2), root.end_job())
    for rank in range(8):
        tree.network.now_us += 1000
        client = tree.clients[rank]
        tree.send(rank, client.contribution(client.first_seq, np.ones(16, np.float32)))
    assert [switch.jobs[0].state for switch in tree.switches] == [JobState.NONE] * 3
    tree.network.now_us += 1000
    tree.send(0, tree.clients[0].receipt(tree.clients[0].first_seq))
    assert (tree.log[0][-1].type, tree.log[0][-1].reason) == (Type.NOTICE, Reason.JOB)


def test_results_and_answers_count_only_from_the_parent():
    tree = Tree().join()
    leaf, client = tree.switches[1], tree.clients[0]
    for kind, payload in ((Type.RESULT, bytes(8)), (Type.ACK, bytes(64)), (Type.NOTICE, b"")):
        tree.send(0, client.frame(kind, payload))
        tree.send(4, tree.clients[4].frame(kind, payload))
    assert leaf.counters()["outcome.PORT"] == 3
    root, worker = tree.switches[0], tree.clients[0]
    root.receive(1, worker.frame(Type.RESULT, bytes(8), job=1), 0)
    assert leaf.jobs[0].state == JobState.RUNNING


def test_a_leaf_installs_no_result_without_the_token_of_its_parents_job():
    """A host at any port of the root sends a frame that comes from the root's address, by the port of the parent."""
    tree = Tree(seed=7).join()
    root, leaf, first = address(0), address(1), tree.clients[0].first_seq
    for rank in range(7):
        tree.send(rank, tree.clients[rank].contribution(first, np.ones(16, np.float32)))
    forged = compose.result(
        job=0,
        epoch=tree.clients[0].epoch,
        seq=first,
        format=Format.WINDOW64,
        flags=0,
        members=0xFF,
        tainted=0,
        token=tree.switches[1].jobs[0].token ^ 1,
        elements=np.full(16, -666.0, np.float32).view("<u4"),
    )
    frame = udp_frame(
        eth_dst=leaf[0],
        eth_src=root[0],
        ip_src=root[1],
        ip_dst=leaf[1],
        udp_src=UDP_PORT,
        udp_dst=UDP_PORT,
        payload=forged,
    )
    assert tree.switches[1].receive(0, frame, 0) == []
    assert tree.switches[1].outcomes[Outcome.TOKEN] == 1
    tree.send(7, tree.clients[7].contribution(first, np.ones(16, np.float32)))
    assert all(held[first].numbers.view("<f4")[0] == 8 for held in tree.held)


@pytest.mark.parametrize(
    ("slip", "outcome"),
    [
        ({"ranks": 0x1F}, Outcome.MEMBER),
        ({"token": 1}, Outcome.TOKEN),
        ({"format_flags": Format.FP32}, Outcome.FORMAT),
        ({"format_flags": Format.WINDOW64}, Outcome.FORMAT),
        ({"version_type": VERSION << 4 | Type.CONTRIBUTION, "format_flags": Format.WINDOW64}, Outcome.TYPE),
    ],
    ids=["ranks of others", "token", "another float format", "rounded", "a switch contributes"],
)
def test_an_uplink_is_checked(slip, outcome):
    tree = Tree().join()
    (sent_up,) = [
        frame
        for rank in range(4)
        for port, frame in tree.switches[1].receive(
            1 + rank % 2, tree.clients[rank].contribution(tree.clients[rank].first_seq, np.ones(16, np.float32)), 0
        )
        if port == 0
    ]
    header = np.frombuffer(sent_up, HEADER, 1, 42).copy()
    tail = np.frombuffer(sent_up[-UPLINK_TAIL.itemsize :], UPLINK_TAIL).copy()
    for name, value in slip.items():
        (header if name in HEADER.names else tail)[name] = value
    sent_up_so = sent_up[: -UPLINK_TAIL.itemsize] + tail.tobytes()
    body = sent_up_so[64:] if outcome != Outcome.TYPE else sent_up[64:128]
    ip = sent_up[14:16] + (50 + len(body)).to_bytes(2, "big") + sent_up[18:24] + bytes(2) + sent_up[26:34]
    ip = ip[:10] + (0xFFFF - ones_complement_sum(ip)).to_bytes(2, "big") + ip[12:]
    udp = sent_up[34:38] + (30 + len(body)).to_bytes(2, "big") + bytes(2)
    frame = sent_up[:14] + ip + udp + header.tobytes() + body
    root = tree.switches[0]
    before = root.counters()
    answers = [parse_reply(answer) for _, answer in root.receive(7, frame, 10**6)]
    told = [Reason[outcome.name]] if outcome in (Outcome.MEMBER, Outcome.TOKEN) else []
    assert [(answer.type, answer.reason) for answer in answers] == [(Type.NOTICE, reason) for reason in told]
    assert root.counters()[f"outcome.{outcome.name}"] == before[f"outcome.{outcome.name}"] + 1
    root.receive(7, sent_up, 10**6)
    assert root.counters()["outcome.ADDED"] == before["outcome.ADDED"] + 1


@pytest.mark.parametrize("told", [0, OPERATOR_KEY ^ 1])
def test_a_worker_that_names_ranks_passes_for_no_switch(told):
    """The numbers of uplinks are not checked, so their sender must be a switch of the operator."""
    tree = Tree(TREES["uneven, a worker at the root"], operator_key=OPERATOR_KEY)
    worker, root = tree.clients[3], tree.switches[0]
    worker.ranks = 1 << 3
    worker.challenge = root.jobs[0].challenge
    for _ in range(2):
        tree.send(3, worker.join(world=8, elements=16, operator_key=told))
    assert {reply.reason for reply in tree.log[3]} == {Reason.OPERATOR_KEY}
    assert root.jobs[0].state == JobState.NONE
    worker.ranks = 0
    worker.settings.pop("operator_key")
    tree.join()
    uplink = worker.frame(Type.UPLINK, bytes(8 * 16 + 12), seq=worker.first_seq, format_flags=Format.FIXED64)
    tree.send(3, uplink)
    assert root.outcomes[Outcome.TYPE] == 1
    payloads = adverse(np.random.default_rng(3), 8, 2)
    assert facts(tree.reduce(payloads)) == facts(Tree(FLAT).join().reduce(payloads))


@pytest.mark.parametrize("state", ["running", "forming"])
def test_a_worker_that_knows_its_leafs_nonce_and_token_does_not_take_the_leafs_place(state):
    tree = Tree(operator_key=OPERATOR_KEY)
    for _ in range(4):
        for rank in range(4 if state == "forming" else 8):
            tree.send(rank, tree.clients[rank].join(world=8, elements=16))
    root = tree.switches[0]
    before = root.jobs[0]
    assert before.state == (JobState.RUNNING if state == "running" else JobState.FORMING)
    for frame in frames_as_leaf(tree, 0):
        root.receive(7, frame, tree.network.now_us)
        assert root.jobs[0] == before
    tree.join()
    payloads = adverse(np.random.default_rng(4), 8, 2)
    assert facts(tree.reduce(payloads)) == facts(Tree(FLAT).join().reduce(payloads))


def successor(tree, rank):
    """Return a worker of another program at another machine, which has the rank's home, settings and port."""
    client = tree.clients[rank]
    again = Client.numbered(50, port=client.port)
    again.ranks, again.switch_mac, again.switch_ip = client.ranks, client.switch_mac, client.switch_ip
    again.settings, again.format = client.settings, client.format
    return again


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize(("rank", "leaves"), [(0, True), (0, False), (3, True), (3, False)])
def test_a_worker_that_joins_a_running_tree_begins_the_next_epoch_of_all(rank, leaves, rates):
    """Below a leaf and at the root; the former owner of its rank has left, or is silent for longer than `evict_us`."""
    tree = Tree(TREES["uneven, a worker at the root"], **rates).join(evict_us=5_000_000)
    payloads = adverse(np.random.default_rng(9), 8, 2)
    tree.reduce(payloads)
    old, again = tree.clients[rank], successor(tree, rank)
    epoch = old.epoch
    for _ in range(10 if leaves else 0):
        tree.send(rank, old.leave(seq=old.number + 1))
    tree.network.now_us += 0 if leaves else 8_000_000
    for other in {0, 1, 2, 3, 4, 5, 6, 7} - {rank}:
        tree.send(other, tree.clients[other].receipt(tree.clients[other].first_seq + 2))
    tree.clients[rank] = again
    assert tree.come_back(epoch) == (epoch + 1) % 2**16
    assert tree.told_renewed([rank]) == [1]
    for held in tree.held:
        held.clear()
    assert facts(tree.reduce(payloads)) == facts(Tree(FLAT).join().reduce(payloads))
    tree.agree()


def test_another_host_does_not_take_the_place_of_a_live_member_of_a_running_tree():
    for rank in (0, 3):
        tree = Tree(TREES["uneven, a worker at the root"]).join()
        old, again = tree.clients[rank], successor(tree, rank)
        tree.clients[rank] = again
        for _ in range(3):
            tree.send(rank, again.join())
        assert tree.log[rank][-1].reason == Reason.MEMBER
        assert [switch.jobs[0].epoch for switch in tree.switches] == [old.epoch] * 3
        assert {switch.jobs[0].state for switch in tree.switches} == {JobState.RUNNING}


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("lost", ["link", "leaf", "leaf at once", "root", "worker"])
def test_a_leaf_whose_link_was_down_or_that_has_restarted_gets_its_workers_back_in(lost, rates):
    """The leaf of ranks 0 to 3. Its own workers join anew after a restart; after an outage of the link their Joins with
    the old nonce are enough, also if one of them has died meanwhile. When the root has restarted, all join anew."""
    tree = Tree(**rates).join(evict_us=5_000_000)
    payloads = adverse(np.random.default_rng(9), 8, 4)
    first = tree.reduce(payloads[:, :2])
    epoch, one = tree.clients[0].epoch, np.ones(16, np.float32)
    if lost == "worker":
        tree.gone.add(0)
    if lost in ("leaf", "leaf at once"):
        tree.restart(1)
    for _ in range(8 if lost in ("link", "leaf", "worker") else 0):  # the root hears nothing of the leaf
        tree.network.now_us += 1_000_000
        for rank in range(4, 8):
            tree.send(rank, tree.clients[rank].contribution(tree.clients[rank].first_seq + 2, one))
    if lost == "root":
        tree.restart(0)
    back = [rank for rank in range(4) if rank not in tree.gone]
    if lost in ("leaf", "leaf at once", "root"):
        back = list(range(8)) if lost == "root" else back
        for rank in back:
            tree.clients[rank].forget(90_000 + rank)
    now = tree.come_back(epoch)
    if lost != "root":
        assert now == (epoch + 1) % 2**16
        assert tree.told_renewed(range(1, 8)) == [1] * 7
    for held in tree.held:
        held.clear()
    again = tree.reduce(payloads[:, :2])
    tree.agree()
    if lost != "worker":
        assert facts(again) == facts(first)
    else:
        assert [int(reply.header["members"]) for reply in again] == [0xFE] * 2


@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_a_reset_at_any_switch_reaches_the_whole_tree(shape, rates):
    payloads = adverse(np.random.default_rng(9), 8, 2)
    tree = Tree(shape, **rates).join()
    for rank in (0, 3):
        tree.reduce(payloads)
        client, number, epoch = tree.clients[rank], tree.clients[rank].number + 1, tree.clients[rank].epoch
        for _ in range(200):
            if tree.switches[0].jobs[0].epoch != epoch:
                break
            tree.send(rank, client.reset(seq=number))  # the retransmissions carry it up
        client.number = number
        assert tree.come_back(epoch) == (epoch + 1) % 2**16
        assert tree.told_renewed(range(8)) == [1] * 8
        for held in tree.held:
            held.clear()
    assert facts(tree.reduce(payloads)) == facts(Tree(FLAT).join().reduce(payloads))


def test_a_leaf_that_has_slept_through_the_roots_restart_joins_the_new_job():
    """The other leaf has formed the job again before, so the root refuses the epoch and not the job."""
    tree = Tree().join()
    payloads = adverse(np.random.default_rng(9), 8, 2)
    tree.reduce(payloads)
    epoch = tree.clients[0].epoch
    tree.restart(0)
    one = np.ones(16, np.float32)
    for rank in range(4, 8):
        tree.send(rank, tree.clients[rank].contribution(tree.clients[rank].first_seq + 2, one))
        tree.clients[rank].forget(90_000 + rank)
    for _ in range(3):
        for rank in range(4, 8):
            tree.send(rank, tree.clients[rank].join())
    assert tree.switches[0].jobs[0].state == JobState.FORMING
    tree.come_back(epoch)
    for held in tree.held:
        held.clear()
    tree.reduce(payloads)


@pytest.mark.parametrize("switch", [0, 1])
def test_actions_that_only_the_root_or_no_switch_executes(switch):
    tree = Tree(TREES["uneven, a worker at the root"]).join()
    rank = tree.homes.index(switch)
    client = tree.clients[rank]
    for frame, at_root in (
        (client.rising(Action.HALT, {"mode": 1}), Reason.ACTION),
        (client.rising(Action.FBCAST, {"segment": 7}), Reason.SEQ),
    ):
        tree.send(rank, frame)
        assert tree.log[rank][-1].reason == (at_root if switch == 0 else Reason.ACTION)


def test_an_eviction_at_a_leaf_closes_its_slots_and_they_go_up():
    tree = Tree()
    tree.join(evict_us=2 * SILENCE_TICK_US)
    payloads = np.full((8, 1, 16), 0x3F800000, np.uint32)
    for rank in range(1, 8):
        tree.send(rank, tree.clients[rank].contribution(tree.clients[rank].first_seq, payloads[rank, 0]))
    tree.gone.add(0)
    tree.network.now_us += 4 * SILENCE_TICK_US
    found = tree.reduce(payloads)
    assert [int(reply.header["members"]) for reply in found] == [0xFE]
    assert tree.switches[1].counters()["stat.EVICTED"] == 1


def test_a_leaf_is_not_evicted_for_the_silence_of_one_of_its_workers():
    """The other leaf asks the root first each time. The root learns from retransmissions that members below this leaf
    wait."""
    tree = Tree()
    tree.join(evict_us=2 * SILENCE_TICK_US)
    one = np.ones(16, np.float32)
    for _ in range(8):
        for rank in range(7):
            tree.send(rank, tree.clients[rank].contribution(tree.clients[rank].first_seq, one))
        tree.network.now_us += SILENCE_TICK_US // 2
    assert [int(reply.header["members"]) for held in tree.held[:7] for reply in held.values()] == [0x7F] * 7
    assert [switch.counters()["stat.EVICTED"] for switch in tree.switches] == [0, 0, 1]


@pytest.mark.parametrize("flags", [ContributionFlag.BOUNDARY, ContributionFlag.REQUIRES_ALL])
def test_the_flags_of_a_contribution_go_up_and_are_compared(flags):
    tree = Tree().join()
    for rank in range(7):
        tree.send(
            rank, tree.clients[rank].contribution(tree.clients[rank].first_seq, np.ones(16, np.float32), flags=flags)
        )
    slot = tree.switches[0].jobs[0].ring.slots[0]
    assert (slot.boundary, slot.requires_all) == (
        flags == ContributionFlag.BOUNDARY,
        flags == ContributionFlag.REQUIRES_ALL,
    )
    tree.send(7, tree.clients[7].contribution(tree.clients[7].first_seq, np.ones(16, np.float32)))
    assert tree.switches[2].counters()["outcome.FORMAT"] == 1


def test_a_result_that_opened_its_slot_answers_late_contributions():
    """FBCAST at the root completes a segment that a leaf has not opened. The result does not carry its workers'
    boundary."""
    tree = Tree(TREES["uneven, a worker at the root"]).join()
    root, leaf = tree.clients[3], tree.clients[0]
    one = np.ones(16, np.float32)
    tree.send(3, root.contribution(root.first_seq, one, flags=ContributionFlag.BOUNDARY))
    tree.send(3, root.rising(Action.FBCAST, {"segment": root.first_seq}))
    tree.held[0].clear()
    tree.send(0, leaf.contribution(leaf.first_seq, one, flags=ContributionFlag.BOUNDARY))
    assert [int(reply.header["members"]) for reply in tree.held[0].values()] == [0b1000]


def test_a_network_refuses_invalid_rates():
    with pytest.raises(ValueError, match="Network loss must be 0 to 1, not 2"):
        Network([], [], loss=2)


def test_an_uplink_of_a_worker_outside_of_trees_is_refused():
    switch = TreeSwitch(Config(ports=2, members=4, window=2, elements=16), mac=SWITCH_MAC, ip=SWITCH_IP, seed=3)
    workers = [Client.numbered(k) for k in range(2)]
    for _ in range(3):
        for worker in workers:
            for _, frame in switch.receive(worker.port, worker.join(world=2, elements=16), 0):
                if frame[:6] == worker.mac:
                    worker.take(frame)
    tail = np.zeros(1, UPLINK_TAIL)
    tail["ranks"] = 1 << workers[0].member
    body = np.full(16, 1 << 40, "<i8").tobytes() + tail.tobytes()
    uplink = workers[0].frame(Type.UPLINK, body, seq=workers[0].first_seq, format_flags=Format.FIXED64)
    assert switch.receive(workers[0].port, uplink, 0) == []
    assert switch.outcomes[Outcome.TYPE] == 1 and not switch.outcomes[Outcome.ADDED]


def test_workers_below_both_leaves_learn_that_their_collectives_differ():
    """The root refuses the second uplink, and tells the first leaf when that repeats its own."""
    tree = Tree().join()
    steps = [Collective(position, CollectiveKind.ALLREDUCE, 1).word for position in (5, 6)]
    for _ in range(3):  # contributions, then retransmissions: the first ones bring the leaves the root's notices
        for rank, client in enumerate(tree.clients):
            numbers = np.ones(16, np.float32)
            tree.send(rank, client.contribution(client.first_seq, numbers, collective=steps[rank >= 4], digest=7))
    notices = [[reply for reply in log if reply.type == Type.NOTICE] for log in tree.log]
    told = [{int(reply.header["members"]) for reply in found if reply.reason == Reason.COLLECTIVE} for found in notices]
    assert told == [{steps[1]}] * 4 + [{steps[0]}] * 4
    assert not any(reply.type == Type.RESULT for log in tree.log for reply in log)
    assert tree.switches[0].counters()["outcome.COLLECTIVE"] >= 1
