"""The core in a tree of switches, at the level of headers, against the golden model; every plausible mutant is
killed."""

from functools import cache

import numpy as np
import pytest

from hw.decide import checks, core, reply, ring, work
from hw.decide.membership import (
    acknowledgement,
    command,
    departure,
    entry_search,
    join,
    membership,
    parent_reply,
    settings,
    slot_completion,
)
from hw.decide.rules import renewal
from iswitch.config import Config
from iswitch.golden.egress import compose
from iswitch.golden.interface.message import Source, SwitchAddress
from iswitch.wire import (
    NO_MEMBER,
    SILENCE_TICK_US,
    UDP_PORT,
    UPLINK_TAIL,
    Action,
    ContributionFlag,
    Format,
    JobState,
    Reason,
    ResultFlag,
    Type,
)
from sim.bench.core import CoreBench
from sim.bench.traffic import adverse_numbers
from sim.bench.tree import BAD, OPERATOR_KEY, TREES, Tree, address, frames_as_leaf, rebuilt, spoilt, with_fields
from sim.frames.client import Client

CONFIG = Config(ports=8, bus_bits=64, members=8, jobs=2, window=2, elements=16, queue_bytes=4096, mac_entries=64)


def notice_from(result):
    """Return a notice from the sender of a result to a host with another token."""
    own = SwitchAddress(result[6:12], result[26:30])
    payload = compose.notice(job=0, epoch=0, seq=0, member=0, token=5, reason=Reason.JOB)
    return compose.frame(own, Source(0, result[:6], int.from_bytes(result[30:34], "big"), UDP_PORT), payload)


@cache
def lives(shape="three levels", format=Format.WINDOW64):
    """Benches of all switches of a tree that has been through everything: joins, sums, late and early ones, departures,
    a Reset, an end."""
    rng = np.random.default_rng(1)
    tree = Tree(TREES[shape], CONFIG, switch=CoreBench, **BAD)
    frames_seen = [[] for _ in tree.switches]
    for bench, frames in zip(tree.switches, frames_seen):
        bench.receive = lambda port, frame, now_us=0, frames=frames, receive=bench.receive: (
            frames.append((port, frame)),
            receive(port, frame),
        )[1]
    client, root = tree.clients, tree.homes.index(0) if 0 in tree.homes else None
    for changed in ({"threshold": 7}, {"elements": 400}, {"fraction": 500}):
        tree.send(0, client[0].join(**{"world": 8, "elements": 16} | changed))
    other = Client.numbered(50, port=1)
    other.switch_mac, other.switch_ip = address(0)
    other.challenge = tree.switches[0].model.jobs[0].challenge
    tree.switches[0].receive(3, other.join(world=2, elements=16))  # the parent has another job of this number
    for _ in range(8):
        for rank in range(8):
            tree.send(rank, client[rank].join(world=8, elements=16, format=format))
    tree.switches[0].receive(3, other.end_job())
    for bench in tree.switches[1:]:
        other.switch_mac, other.switch_ip = bench.model.own
        other.challenge = bench.model.jobs[0].challenge
        bench.receive(1, other.end_job())
    for one in client:
        one.forget(one.nonce + 1)
    other.switch_mac, other.switch_ip = address(tree.homes[0])
    leaf = (
        next(bench for bench in tree.switches[1:] if bench.model.parents[0].mac == address(0)[0]).model.parents[0].ranks
    )
    early = Client.numbered(59, port=1)  # takes one of a leaf's ranks at the root, and gives it back
    early.switch_mac, early.switch_ip = address(0)
    early.challenge = tree.switches[0].model.jobs[0].challenge
    settings = {"world": 8, "elements": 16, "format": format}
    enter(tree.switches[0], early, member=leaf.bit_length() - 1, **settings)
    beside = tree.homes.index(tree.homes[0], 1)
    for _ in range(2):
        tree.send(beside, client[beside].join(world=8, elements=16, format=format))
    for ranks in (
        1 | 1 << 8,
        1 | 1 << beside,
        1,
        1 << 8,
        1,
    ):  # no rank of these, not disjoint, one that yields, refused
        other.ranks, other.challenge = ranks, tree.switches[tree.homes[0]].model.jobs[0].challenge
        other.forget(1000 + len(tree.log[0]))
        enter(tree.switches[tree.homes[0]], other, **settings)
        leave(tree.switches[tree.homes[0]], other)
        for _ in range(20):
            tree.send(0, client[0].join(world=8, elements=16, format=format))
    for _ in range(4):  # leaves what is not there yet, and comes back
        tree.send(7, client[7].join(world=8, elements=16, format=format))
    for _ in range(4):
        tree.send(7, client[7].leave(seq=1))
    client[7].forget(777)
    for rank in [rank for rank in range(8) if leaf >> rank & 1] * 12:
        tree.send(rank, client[rank].join(world=8, elements=16, format=format))
    leave(tree.switches[0], early)
    for switch, wanted in (
        (tree.homes[0], NO_MEMBER),
        (0, NO_MEMBER),
        (0, leaf.bit_length() - 1),
    ):  # any rank, and one that a leaf has brought
        unknown_host = Client.numbered(60 + switch + wanted % 255, port=1)
        unknown_host.switch_mac, unknown_host.switch_ip = address(switch)
        unknown_host.challenge = tree.switches[switch].model.jobs[0].challenge
        enter(tree.switches[switch], unknown_host, member=wanted, **settings)
        leave(tree.switches[switch], unknown_host)
    tree.join(format=format, world=8, elements=16)
    other.ranks, other.challenge = 1, tree.switches[tree.homes[0]].model.jobs[0].challenge
    tree.switches[tree.homes[0]].receive(1, other.join(world=8, elements=16, format=format, nonce=4711))
    numbers = adverse_numbers(rng, 8 * 8 * 16, 0.02).reshape(8, 8, 16)
    tree.reduce(numbers[:, :4])
    tree.reduce(numbers[:, :2], start=4, format=Format.INT32)
    for bench, frames in zip(tree.switches, frames_seen):
        for port, frame in [(port, frame) for port, frame in frames if frame[42] & 0xF == Type.UPLINK][-2:]:
            tail = UPLINK_TAIL.itemsize
            bench.receive(port, rebuilt(frame, frame[42:-tail] + bytes([0xFF, 0, 0, 0]) + frame[4 - tail :]))
            bench.receive(port, with_fields(frame, members=0xFF))  # another collective
    for rank in range(8):
        first = client[rank].first_seq + 6
        for want in (0, 1):
            tree.send(rank, client[rank].receipt(first, behind=rank % 3, want=bool(want)))
        tree.send(rank, client[rank].contribution(first, numbers[rank, 0], flags=ContributionFlag.BOUNDARY))
        tree.send(rank, client[rank].rising(Action.HALT, {"mode": 1}))
        tree.send(rank, client[rank].set_h(7))
        tree.send(rank, client[rank].fbcast(first))
        tree.send(
            rank,
            client[rank].contribution(
                first, numbers[rank, 0], flags=ContributionFlag.BOUNDARY | ContributionFlag.REQUIRES_ALL
            ),
        )
    for rank in (0, 4):
        tree.send(rank, client[rank].contribution(client[rank].first_seq + 7, numbers[rank, 1], behind=1))
        for _ in range(3):
            tree.send(rank, client[rank].leave())
    for rank in (2, 3, 5, 6, 7):
        tree.send(rank, client[rank].contribution(client[rank].first_seq + 7, numbers[rank, 1], behind=1))
    for _ in range(4):
        tree.send(1, client[1].leave(seq=client[1].number + 1))  # no other member is awaited
    for rank in (1, 2, 3):
        tree.send(rank, client[rank].reset())
    if root is not None:
        tree.send(root, client[root].reset())
        for held in tree.held:
            held.clear()  # the same seqs come again
        for rank in (1, 2, 3, 5, 6, 7):
            for _ in range(2):
                tree.send(rank, client[rank].contribution(client[rank].first_seq + 8, numbers[rank, 1]))
                tree.send(rank, client[rank].join())
            tree.send(rank, client[rank].contribution(client[rank].first_seq, numbers[rank, 1]))
    for bench, frames in zip(tree.switches, frames_seen):
        seen = frames.copy()
        for port, frame in [(port, frame) for port, frame in seen if frame[42] & 0xF == Type.ACK]:
            bench.receive(port, frame)  # answers of an earlier epoch
        for port, frame in [(port, frame) for port, frame in seen if frame[42] & 0xF == Type.RESULT][:1]:
            bench.receive(port, notice_from(frame))
        for at in rng.integers(0, len(seen), 150):
            bench.receive(seen[at][0], spoilt(seen[at][1], rng))
    if root is not None:
        client[root].challenge = tree.switches[0].model.jobs[0].challenge
        tree.send(root, client[root].end_job())
    for rank in range(8):
        for _ in range(4):
            tree.send(rank, client[rank].contribution(client[rank].first_seq, numbers[rank, 1]))
            tree.send(rank, client[rank].leave())
    for bench, frames in zip(tree.switches, frames_seen):
        for port, frame in frames[-40:]:
            bench.receive(port, frame)  # of a job that is gone
    return tree.switches


def enter(bench, client, **settings):
    """Send a host's Join, and again with the challenge."""
    for _ in range(2):
        for _, frame in bench.receive(1, client.join(**settings)):
            if frame[:6] == client.mac:
                client.take(frame)


def leave(bench, client):
    """Send the Leave of a host that has joined."""
    if client.is_member:
        bench.receive(1, client.leave())


@cache
def yielding():
    """The bench of a root where silent hosts have ranks that a leaf's Join brings: all of them yield."""
    bench = CoreBench(CONFIG)
    settings = {"world": 8, "elements": 16, "evict_us": SILENCE_TICK_US}
    dead = [Client.numbered(70 + k, port=1) for k in range(4)]
    for client, ranks in zip(dead, (1 << 1 | 1 << 6, 1 << 3, 1 << 4, 1 << 5), strict=True):
        client.ranks, client.key = ranks, dead[0].key
        enter(bench, client, **settings)
    for _ in range(64):
        bench.receive(1, dead[0].read(0))
    for number, ranks in enumerate((0b1010, 0b0101, 1 << 4, 1 << 5, 1 << 6, 1 << 7)):
        client = Client.numbered(80 + number, port=2)
        client.ranks, client.key = ranks, dead[0].key
        enter(bench, client, **settings)
        assert client.is_member
    assert bench.model.jobs[0].state == JobState.RUNNING
    return bench


def test_silent_members_yield_each_of_their_ranks():
    yielding().check()


@cache
def any_rank():
    """The bench of a root where a leaf with ranks 0 and 1 is a member. A worker that asks for rank 1 is refused; one
    that joins with any rank gets rank 2."""
    bench = CoreBench(CONFIG)
    leaf, greedy, worker = (Client.numbered(90 + k, port=1 + k) for k in range(3))
    leaf.ranks, greedy.key, worker.key = 0b11, leaf.key, leaf.key
    greedy.member = 1
    for client in (leaf, greedy, worker):
        enter(bench, client, world=3, elements=16)
    assert leaf.is_member and not greedy.is_member and worker.member == 2
    return bench


def test_a_worker_beside_a_leaf_gets_the_lowest_rank_that_no_entry_owns_and_no_other():
    any_rank().check()


@cache
def departed():
    """A leaf's bench: the slowest of two leaves, whereupon a slot closes that only the other has contributed to."""
    tree = Tree(((-1, 0), (1, 1)), CONFIG, switch=CoreBench).join()
    numbers = np.ones((2, 4, 16), np.float32).view(np.uint32)
    tree.reduce(numbers)
    tree.send(0, tree.clients[0].contribution(tree.clients[0].first_seq + 4, numbers[0, 0]))
    tree.send(1, tree.clients[1].leave())
    return tree.switches[1]


def test_what_goes_up_after_a_departure_says_what_the_others_lack():
    bench = departed()
    bench.check()
    assert [done.up[1] for done in bench.model.works if done.up][-1] == 0


@cache
def guarded():
    """The benches of a root and a leaf with an operator key. A worker of the leaf tries to take the leaf's place, and
    another one to be a switch."""
    tree = Tree(((-1, 0), (1, 1)), CONFIG, switch=CoreBench, operator_key=OPERATOR_KEY).join()
    for frame in frames_as_leaf(tree, 0):
        tree.switches[0].receive(CONFIG.ports - 1, frame)
    numbers = np.ones((2, 4, 16), np.float32).view(np.uint32)
    tree.reduce(numbers)
    tree.clients[1].ranks = 1 << 1
    tree.send(1, tree.clients[1].join(operator_key=OPERATOR_KEY ^ 1 << 63, world=2, elements=16))
    assert tree.log[1][-1].reason == Reason.OPERATOR_KEY
    tree.send(0, tree.clients[0].leave())
    tree.send(1, tree.clients[1].leave())
    return tree.switches


@pytest.mark.parametrize("switch", range(2))
def test_a_worker_below_a_leaf_takes_no_place_of_a_switch(switch):
    guarded()[switch].check()


def host_pair(bench, **settings):
    """Two hosts behind switch 1 that are the members of a job without a parent."""
    pair = [Client.numbered(50 + k, port=1, job=1) for k in range(2)]
    for client in (*pair, *pair):
        client.switch_mac, client.switch_ip = address(1)
        enter(bench, client, world=2, elements=16, **settings)
    return pair


@cache
def before_a_leafs_frame():
    """The bench of a switch that is a leaf in one job only. A contribution to the other job, which completes the sum
    without that job's second member, is followed by one of the leaf's job."""
    tree = Tree(((-1, 0), (1, 1)), CONFIG, switch=CoreBench).join()
    bench, one = tree.switches[1], np.ones(16, np.float32)
    pair = host_pair(bench, threshold=1)
    bench.receive(1, pair[0].contribution(pair[0].first_seq, one))
    tree.send(0, tree.clients[0].contribution(tree.clients[0].first_seq, one))
    return bench


def test_a_result_is_partial_whatever_the_next_frames_job_is():
    bench = before_a_leafs_frame()
    bench.check()
    assert [work.flags & ResultFlag.PARTIAL for work in bench.model.works if work.emit] == [ResultFlag.PARTIAL]


@pytest.mark.parametrize("stalls", [0, 0.8])
def test_a_leafs_job_and_another_one_take_turns(stalls):
    tree = Tree(((-1, 0), (1, 1)), CONFIG, switch=CoreBench).join()
    bench, one = tree.switches[1], np.ones(4, np.float32)
    pair = host_pair(bench)
    for seq in range(6):
        for rank, client in enumerate(pair):
            bench.receive(1, client.contribution(client.first_seq + seq, one))
            tree.send(rank, tree.clients[rank].contribution(tree.clients[rank].first_seq + seq, one))
    bench.check(stalls=stalls)


@pytest.mark.parametrize("stalls", [0, 0.4])
@pytest.mark.parametrize("switch", range(4))
def test_a_switch_in_a_tree_has_the_models_outcomes_operations_and_replies(switch, stalls):
    lives()[switch].check(stalls=stalls)


def test_an_fp32_job():
    lives("uneven, a worker at the root", Format.FP32)[1].check()


MUTANTS = {
    "what goes up goes to the members": (work, "recipients.eq(1 << config.members)", "recipients.eq(job.live)"),
    "an uplink is of a rounded format": (
        work,
        "work.result.numeric.eq(uplink_format(slot.numeric, half_width=config.half_width))",
        "work.result.numeric.eq(slot.numeric)",
    ),
    "results name members by index": (
        work,
        "members.eq(slot.ranks if uplinks else slot.members)",
        "members.eq(slot.members)",
    ),
    "an uplink is not known to be repeated": (work, "Mux(is_retransmission, ContributionFlag.RETRANSMISSION, 0)", "0"),
    "a NOTICE answers what came from above": (
        core,
        "(outcome == name) & ~kind.parent_reply & ~kind.parent_result",
        "(outcome == name)",
    ),
    "no receipts go up": (core, "& may_notice | ~fault & ring.decision.reports |", "& may_notice |"),
    "a receipt never wants": (reply, "Mux(report.want, ContributionFlag.WANT << FLAGS_SHIFT, 0)", "0"),
    "a Leave is numbered as a Join": (
        reply,
        "Mux(requests_parent, leaves, report.seq)",
        "Mux(requests_parent, 0, report.seq)",
    ),
    "a leaf's Join has no ranks": (reply, "Mux(requests_parent, parent.ranks, 0)", "0"),
    "anybody's result is the parent's": (checks, "(from_parent_address, Outcome.ADDRESS)", "(1, Outcome.ADDRESS)"),
    "a switch may name others' ranks": (checks, "named_ranks & ~Cat(member.ranks", "0 & ~Cat(member.ranks"),
    "an uplink's numbers are as long as a worker's": (
        checks,
        "(kind.uplink & wide, sums >> 1,",
        "(kind.uplink & wide, sums,",
    ),
    "a rank has two places": (entry_search, "rank_is_taken | rank_not_allowed |", "rank_not_allowed |"),
    "a rank's pending owner does not yield": (
        entry_search,
        "rank_is_taken.eq(rank_is_taken | ~entry_yields)",
        "rank_is_taken.eq(1)",
    ),
    "a member that yields keeps its entry": (entry_search, "index.eq(holder)", "index.eq(wanted)"),
    "a Join without ranks gets another's": (
        entry_search,
        "(row.ranks & ranks).any()",
        "(row.ranks & frame.members).any()",
    ),
    "a Join for any rank gets another's": (entry_search, "= free & ~ranks_taken,", "= free,"),
    "an index is not the lowest rank": (
        entry_search,
        "wanted.eq(lowest_set(frame.members))",
        "wanted.eq(frame.member)",
    ),
    "an index is no rank that belongs below": (
        entry_search,
        "ranks_below.bit_select(previous, 1) if uplinks else 1",
        "1",
    ),
    "ranks may be anybody's": (entry_search, "(ranks & ~ranks_below).any()", "0"),
    "a new member of a tree that runs waits for a boundary": (
        join,
        "begins_anew.eq(in_tree & runs)",
        "begins_anew.eq(0)",
    ),
    "a leaf does not take the next nonce": (renewal, "[:NONCE_COUNT_BITS] + joins_again)", "[:NONCE_COUNT_BITS] + 0)"),
    "a leaf begins an epoch of its own": (renewal, "job.epoch + ~is_leaf", "job.epoch + 1"),
    "the root keeps its epoch": (renewal, "job.epoch + ~is_leaf", "job.epoch"),
    "nobody learns that the job has begun anew": (renewal, "renewed.eq(job.renewed | ~is_leaf)", "renewed.eq(0)"),
    "a leaf runs when all below have joined": (join, "all_joined.eq(~is_leaf & (", "all_joined.eq(("),
    "a leaf joins before all below have": (membership, "& (job.up_ran | all_ranks)", ""),
    "a leaf joins though it runs": (membership, "(job.state == JobState.FORMING) & (job.up_ran", "(job.up_ran"),
    "a leaf that lacks a worker does not come back": (membership, "(job.up_ran | all_ranks)", "all_ranks"),
    "a leaf does not start over": (
        parent_reply,
        'tables.roster_next.admitted.eq(0), self.done.eq(0)] m.next = "READ_JOB"',
        "tables.roster_next.admitted.eq(0)]",
    ),
    "the last Leave is answered at once": (departure, "last_member & parent_knows", "parent_knows & 0"),
    "a member that has left still owns its ranks": (
        departure,
        "tables.status_next.ranks.eq(job.ranks & ~row.ranks)",
        "tables.status_next.ranks.eq(job.ranks)",
    ),
    "a departure completes a leaf's slot": (
        slot_completion,
        "Mux(is_leaf & ~named, SlotState.SENT_UP, SlotState.COMPLETE)",
        "SlotState.COMPLETE",
    ),
    "any nonce is ours": (parent_reply, "ack.nonce != job.up_nonce", "0"),
    "any notice is ours": (parent_reply, "m.Elif(other_token | forms)", "m.Elif(0)"),
    "halted by a leaf's worker": (command, "halts & in_tree | ", ""),
    "fewer than all in a tree": (command, "sets & in_tree & ", "0 & "),
    "an FBCAST at a leaf": (command, "halts & in_tree | forces & is_leaf", "halts & in_tree"),
    "a refusal by the parent is kept to oneself": (acknowledgement, "joins & request.is_leaf & exists", "joins & 0"),
    "a leaf keeps the operator key to itself": (reply, "Mux(leaves, 0, operator_key)", "0"),
    "a Leave has the operator key": (reply, "Mux(leaves, 0, operator_key)", "operator_key"),
    "any member may name ranks": (settings, "(members == 0) | request.operator_key_same", "1"),
    "a bit of the operator key is not compared": (
        membership,
        "self.headers.body.operator_key == self.operator_key",
        "self.headers.body.operator_key[:63] == self.operator_key[:63]",
    ),
    "a worker takes the place of a switch": (entry_search, "row.sends_uplinks == names_ranks", "1"),
    "the next frame's job decides whether a result is partial": (work, "held.decided.is_leaf", "kind.is_leaf"),
    "no time for the lowest": (
        ring,
        "m.d.sync += self.lowest.eq(least)",
        "least_1 = Signal(SEQ_BITS); m.d.sync += [least_1.eq(least), self.lowest.eq(least_1)]",
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_killed(name, mutated_core):
    wrong = mutated_core(*MUTANTS[name])
    benches = [
        *guarded(),
        departed(),
        yielding(),
        before_a_leafs_frame(),
        any_rank(),
        *(bench for shape in ("uneven, a worker at the root", "chain", "three levels") for bench in lives(shape)),
    ]
    with pytest.raises((AssertionError, TimeoutError)):
        for bench in benches:
            bench.check(core=wrong)
