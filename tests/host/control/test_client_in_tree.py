"""A reset and a Join below a leaf of golden switches, where the answers have to come from the root."""

import pytest

from iswitch.config import Config
from iswitch.control.client import Control
from iswitch.driver.membership import Membership
from iswitch.errors import RefusedError, SwitchUnreachableError
from iswitch.golden.network import Network
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.wire import ADDRESSES, Format, JobState, Mode
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client

CONFIG = Config(ports=4, bus_bits=64, members=4, window=4, elements=4)
ROOT = bytes.fromhex("025749000002"), bytes([10, 0, 0, 2])
UP = 3
"""The leaf's port to the root."""


class Tree:
    """A root, a leaf with two workers, and the link between them. `lost`: how many of the next frames it loses."""

    def __init__(self, *, operator_key=0):
        self.root = TreeSwitch(CONFIG, mac=ROOT[0], ip=ROOT[1], seed=5, operator_key=operator_key)
        self.lost, self.number = 0, 1
        self.switches = [self.root, self.new_leaf(1)]
        self.network = Network(self.switches, [((0, 0), (1, UP))])
        receive = self.root.receive
        self.root.receive = lambda *frame: [] if self.loses() else receive(*frame)
        self.wires = [Wire(self, 1), Wire(self, 2)]
        self.controls = [Control(wire, timeout_s=2.0) for wire in self.wires]

    def loses(self):
        self.lost -= self.lost > 0
        return self.lost > 0

    def new_leaf(self, seed):
        return TreeSwitch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=seed, parents={0: Parent(UP, *ROOT, ranks=0b11)})

    def join(self, rank):
        """Join as a new incarnation, and let the other worker repeat its Join meanwhile. Return the membership."""
        self.number += 2
        request = Membership(
            job=0,
            key=1,
            world=2,
            threshold=2,
            format=Format.WINDOW64,
            fraction=44,
            elements=4,
            mode=Mode.QUARANTINE,
            nonce=self.number << 16,
            token=self.number,
            job_token=7,
            wanted=rank,
        )
        return self.controls[rank].join(request, timeout_s=20.0)


class Wire:
    """A transport from a port of the leaf, on a clock of its own. While the worker sleeps, `meanwhile` is called."""

    def __init__(self, tree, port):
        self.tree, self.client, self.clock, self.inbox = tree, Client.numbered(port), 1.0, []
        self.meanwhile = lambda: None
        tree.network.hosts[1, port] = lambda frame: self.inbox.append(frame)

    def randbits(self, bits):
        return 4711

    def now(self):
        return self.clock

    def sleep(self, seconds):
        self.clock += seconds
        self.meanwhile()

    def send(self, burst, segment_bytes):
        c = self.client
        frame = c.datagram(bytes(burst))
        self.tree.network.send((1, c.port), frame)

    def receive(self, into, timeout_s):
        if not self.inbox:
            self.clock += timeout_s
            return 0, 0
        frame = self.inbox.pop(0)
        datagram = frame[ADDRESSES.itemsize : 34 + int.from_bytes(frame[38:40])]
        into[: len(datagram)] = datagram
        return len(datagram), len(datagram)


def formed():
    """A tree whose two workers have joined, and their memberships."""
    tree, members = Tree(), []

    def other_joins():
        tree.wires[0].meanwhile = lambda: None
        members.append(tree.join(1))

    tree.wires[0].meanwhile = other_joins
    members.insert(0, tree.join(0))
    assert [control.joined_running_job for control in tree.controls] == [False, False]
    return tree, members


@pytest.mark.parametrize("lost", [0, 3])
def test_a_reset_at_a_leaf_returns_with_the_roots_next_epoch_although_frames_to_the_root_are_lost(lost):
    tree, members = formed()
    tree.lost = lost
    renewed = tree.controls[0].reset(members[0])
    assert renewed.epoch == tree.root.jobs[0].epoch == (members[0].epoch + 1) % 2**16
    assert tree.controls[1].renew(members[1]).epoch == renewed.epoch


def test_a_reset_at_a_leaf_says_that_the_switch_above_does_not_answer():
    tree, members = formed()
    tree.lost = 10**6
    with pytest.raises(SwitchUnreachableError, match="waits for the switch above it"):
        tree.controls[0].reset(members[0])
    tree.lost = 0
    assert tree.controls[0].reset(members[0]).epoch == tree.root.jobs[0].epoch != members[0].epoch


def test_a_leaf_with_another_operator_key_says_which_setting_is_wrong_at_which_switch():
    tree = Tree(operator_key=5)

    def other_joins():
        tree.wires[0].meanwhile = lambda: None
        with pytest.raises(RefusedError):
            tree.join(1)

    tree.wires[0].meanwhile = other_joins
    with pytest.raises(RefusedError, match="a switch has another operator key than the switch above it: this one"):
        tree.join(0)
    assert tree.root.jobs[0].state == JobState.NONE


def test_workers_of_a_leaf_that_has_restarted_are_told_that_the_others_have_a_state():
    tree, members = formed()
    tree.switches[1] = tree.new_leaf(99)

    def other_joins():
        tree.wires[0].meanwhile = lambda: None
        tree.join(1)

    tree.wires[0].meanwhile = other_joins
    assert tree.join(0).epoch == (members[0].epoch + 1) % 2**16
    assert [control.joined_running_job for control in tree.controls] == [True, True]
    assert tree.root.jobs[0].state == JobState.RUNNING
