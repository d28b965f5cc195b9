"""Jobs, members and slots in the registers: the core against the golden model, and named fields against what was
done."""

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.wire import (
    JOB_VIEW,
    MEMBER_VIEW,
    REGISTERS_PER_READ,
    SLOT_VIEW,
    VIEWED_JOBS,
    VIEWED_MEMBERS,
    Format,
    JobState,
    MemberState,
    Register,
    SlotState,
    have_view_register,
    job_view_register,
    member_view_register,
    slot_view_register,
)
from sim.bench.core import CoreBench
from sim.frames.client import Client

CONFIGS = [
    Config(
        ports=4, bus_bits=64, members=members, jobs=jobs, window=window, elements=16, queue_bytes=4096, mac_entries=64
    )
    for members, jobs, window in ((3, 2, 2), (8, 4, 1), (32, 16, 4))
]


class Reader(CoreBench):
    """A core bench whose registers are read by a non-member."""

    reader = Client.numbered(99, port=0)

    def ask(self, client, frame):
        [answer] = self.exchange(client.port, frame)[:1]
        return client.take(answer)

    def view(self, record, address):
        reads = (
            self.ask(self.reader, self.reader.read(address + at)).ack["registers"].astype("<u4")
            for at in range(0, record.itemsize // 4, REGISTERS_PER_READ)
        )
        return np.concatenate(list(reads)).view(record)[0]

    def haves(self, job, member=0):
        return self.ask(self.reader, self.reader.read(have_view_register(job, member))).ack["registers"].tolist()

    def running(self, job, world=2, **settings):
        clients = [Client.numbered(32 * min(job, 1) + k, port=k % 4, job=job) for k in range(world)]
        for _ in range(2):
            for client in clients:
                self.ask(client, client.join(**{"world": world, "elements": 8} | settings))
        return clients

    def everything(self):
        """Every row of some jobs in every view, and those just past the ends."""
        c = self.config
        for job in sorted({0, 1, c.jobs - 1, min(c.jobs, VIEWED_JOBS - 1)}):
            self.view(JOB_VIEW, job_view_register(job))
            for member in range(0, VIEWED_MEMBERS, REGISTERS_PER_READ):
                self.haves(job, member)
            for member in range(min(c.members + 1, VIEWED_MEMBERS)):
                self.view(MEMBER_VIEW, member_view_register(job, member))
            for slot in range(c.slots + 1):
                self.view(SLOT_VIEW, slot_view_register(job, slot))


def test_a_job_shows_its_settings_and_its_members():
    talk = Reader(CONFIGS[0], seed=seed_for_first_seq(2**32 - 8, epoch=0x1234))
    assert not talk.view(JOB_VIEW, job_view_register(1)).tobytes().strip(b"\0")
    a, b = talk.running(1, threshold=1, fraction=-10, mode=1, deadline_us=5000, evict_us=1 << 20, format=Format.FP32)
    job = talk.view(JOB_VIEW, job_view_register(1))
    shown = {
        "state": JobState.RUNNING,
        "format": Format.FP32,
        "fraction": -10,
        "epoch": a.epoch,
        "elements": 8,
        "world": 2,
        "threshold": 1,
        "mode": 1,
        "live": 3,
        "joining": 0,
        "first_seq": a.first_seq,
        "deadline_us": 5000,
        "evict_us": 1 << 20,
        "segments": 0,
        "staleness": 0,
        "reserved": 0,
    }
    assert {name: int(job[name]) for name in JOB_VIEW.names if name != "unused"} == shown
    assert not job["unused"].any()
    for client in (a, b):
        member = talk.view(MEMBER_VIEW, member_view_register(1, client.member))
        assert (member["standing"], member["port"], member["udp"]) == (MemberState.LIVE, client.port, client.udp_port)
        assert (member["mac"].tobytes(), int(member["ip"]).to_bytes(4)) == (client.mac, client.ip)
    assert talk.haves(1)[:3] == [a.first_seq] * 3
    talk.exchange(b.port, b.receipt(a.first_seq + 2))
    assert talk.haves(1) == [a.first_seq, a.first_seq + 2, a.first_seq, 0, 0, 0, 0, 0]
    assert talk.haves(1, 1)[:2] == [a.first_seq + 2, a.first_seq]
    assert not talk.view(MEMBER_VIEW, member_view_register(1, 2)).tobytes().strip(b"\0")
    talk.check()


def test_an_asynchronous_job_shows_its_segments_and_its_staleness():
    talk = Reader(CONFIGS[0])
    talk.running(0, segments=2**24 - 1, staleness=7)
    job = talk.view(JOB_VIEW, job_view_register(0))
    assert (job["segments"], job["staleness"], job["unused"].any()) == (2**24 - 1, 7, False)
    talk.check()


def test_a_collecting_slot_shows_its_missing_members():
    talk = Reader(CONFIGS[0])
    a, b, c = talk.running(0, world=3)
    for client in (a, c):
        talk.exchange(client.port, client.contribution(a.first_seq, np.ones(4, np.float32)))
    slot = talk.view(SLOT_VIEW, slot_view_register(0, a.first_seq % talk.config.slots))
    assert (slot["seq"], slot["state"], slot["format"], slot["length"]) == (
        a.first_seq,
        SlotState.COLLECTING,
        Format.WINDOW64,
        16,
    )
    assert (slot["arrived"], slot["members"], slot["expected"]) == (0b101, 0b101, 0b111)
    assert int(slot["expected"] & ~slot["arrived"]) == 1 << b.member
    talk.check()


def test_members_that_come_and_go_show_their_standing():
    talk = Reader(CONFIGS[0])
    new = Client.numbered(7, port=3)
    a, b = talk.running(0)
    talk.ask(b, b.leave())
    assert talk.view(MEMBER_VIEW, member_view_register(0, b.member))["standing"] == MemberState.NONE
    new.settings, new.key = dict(a.settings), a.key
    talk.ask(new, new.join())
    assert talk.view(MEMBER_VIEW, member_view_register(0, new.member))["standing"] == MemberState.NONE
    talk.ask(new, new.join())
    assert talk.view(MEMBER_VIEW, member_view_register(0, new.member))["standing"] == MemberState.JOINING
    assert talk.view(JOB_VIEW, job_view_register(0))["joining"] == 1 << new.member
    talk.check()


@pytest.mark.parametrize("halted", [False, True])
def test_silence_is_counted_from_the_last_sign_of_life(halted):
    """A contribution that is refused because the job is halted is one, others that are refused are not."""
    talk = Reader(CONFIGS[0])
    a, b = talk.running(0)
    if halted:
        talk.ask(b, b.halt())
    for _ in range(8 * 5):
        talk.exchange(a.port, a.contribution(a.first_seq, np.ones(1, np.float32)) if halted else a.receipt(a.first_seq))
        talk.exchange(b.port, b.contribution(b.first_seq, np.ones(1, np.float32), format=9, token=b.token ^ halted))
    silent = [int(talk.view(MEMBER_VIEW, member_view_register(0, client.member))["silent"]) for client in (a, b)]
    assert silent[0] in (0, 1) and silent[1] - silent[0] in (4, 5)
    talk.check()


@pytest.mark.parametrize(
    "config", CONFIGS, ids=lambda config: f"{config.jobs} jobs, {config.members} members, {config.slots} slots"
)
@pytest.mark.parametrize("stalls", [0, 0.3], ids=["flowing", "stalled"])
def test_every_row_is_the_models_and_nothing_stands_beyond_the_last(config, stalls):
    talk = Reader(config)
    for job in (0, config.jobs - 1):
        clients = talk.running(job, world=config.members)
        for k, client in enumerate(clients):
            talk.exchange(client.port, client.receipt(client.first_seq + k % config.slots))
            for seq in range(k % (config.window + 1)):
                talk.exchange(
                    client.port, client.contribution(client.first_seq + seq, np.ones(1 + seq, np.float32), behind=seq)
                )
    talk.everything()
    talk.ask(clients[0], clients[0].end_job())  # whose rows stay in memory
    talk.everything()
    talk.check(stalls=stalls)


def test_a_read_may_begin_and_end_anywhere():
    talk = Reader(CONFIGS[0], seed=seed_for_first_seq(2**32 - 8))
    talk.running(0)
    for view in (Register.JOBS_VIEW, Register.HAVE_VIEW, Register.MEMBERS_VIEW, Register.SLOTS_VIEW):
        whole = talk.ask(talk.reader, talk.reader.read(view)).ack["registers"].tolist()
        assert talk.ask(talk.reader, talk.reader.read(view - 5)).ack["registers"].tolist()[5:] == whole[:3]
        assert talk.ask(talk.reader, talk.reader.read(view + 3)).ack["registers"].tolist()[:5] == whole[3:]
    talk.check()
