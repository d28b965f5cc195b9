"""When a worker ends the job that refuses it, on a clock of its own, with scripted members."""

from types import SimpleNamespace

import pytest

from iswitch.control import abandoned_job
from iswitch.control.abandoned_job import AbandonedJobWatch
from iswitch.control.inspection import JobView, MemberView
from iswitch.driver.membership import Membership
from iswitch.errors import AbandonedJobWarning, RefusedError
from iswitch.wire import NO_MEMBER, Format, JobState, MemberState, Mode, Reason

EVICT_S = 1.0


class Switch:
    """A job of `world` members and the control client that reads it. `alive`: ranks that give a sign of life all the
    time. `outage`: the time in which the switch's answers take long. `taken`: at which time another worker takes the
    place of a member, between the answer with the job and the one with that member."""

    address = "10.0.0.9:26963"

    def __init__(self, *, state=JobState.RUNNING, alive=(), evict_s=EVICT_S, outage=(0.0, 0.0), world=2, taken=None):
        self.clock, self.transport = 100.0, self
        self.state, self.alive, self.evict_s, self.outage = state, set(alive), evict_s, outage
        self.epoch, self.ended, self.world, self.taken, self.joining = 7, [], world, taken or {}, set()

    def now(self):
        return self.clock

    def sleep(self, seconds):
        self.clock += seconds

    def answer(self):
        self.clock += 0.001
        begin, end = self.outage
        if begin <= self.clock - 100.0 < end:
            self.clock = 100.0 + end

    def read_job(self, control, job):
        self.answer()
        members = set(range(self.world)) if self.state != JobState.NONE else set()
        live, joining = sorted(members - self.joining), sorted(members & self.joining)
        evict_us, n = int(self.evict_s * 1e6), self.world
        return JobView(job, self.state, Format.WINDOW64, 44, self.epoch, 352, n, n, live, joining, 0, 0, evict_us)

    def read_member(self, control, job, member):
        self.answer()
        if self.clock - 100.0 >= self.taken.get(member, 1e9):
            self.joining.add(member)
        standing = MemberState.JOINING if member in self.joining else MemberState.LIVE
        silent_s = 0.0 if member in self.alive | self.joining else self.clock - 99.0
        return MemberView(member, standing, member, f"10.0.0.{member}:4000", "02:00:00:00:00:00", silent_s)

    def switch_info(self):
        return SimpleNamespace(jobs=4)

    def job(self, number):
        return SimpleNamespace(state=JobState.NONE if number == 2 else self.state)

    def end_job(self):
        """As the switch does when the worker's next Join comes."""
        self.ended.append(round(self.clock - 100.0, 1))
        self.state, self.epoch = JobState.NONE, 0


def watch_of(monkeypatch, switch, wanted=NO_MEMBER):
    monkeypatch.setattr(abandoned_job, "read_job", switch.read_job)
    monkeypatch.setattr(abandoned_job, "read_member", switch.read_member)
    request = Membership(
        job=0,
        key=5,
        world=2,
        threshold=2,
        format=Format.WINDOW64,
        fraction=44,
        elements=352,
        mode=Mode.QUARANTINE,
        nonce=1,
        token=7,
        job_token=8,
        wanted=wanted,
    )
    watch = AbandonedJobWatch(switch, request)
    warn = watch._warn
    monkeypatch.setattr(watch, "_warn", lambda *arguments: (switch.end_job(), warn(*arguments)))
    return watch


LONG_S = 3.0
"""An `evict_s` that is longer than the grace period in which members of a running job may still die."""
TAKEN = {1: LONG_S - 0.5, 2: LONG_S - 0.2}
"""Two other workers of the program take the places of dead members while rank 0 looks at them."""


def wait(watch, reason=Reason.MEMBER, timeout_s=60.0):
    """Wait twice, as a worker does whose next Join is refused for the same reason."""
    deadline = watch.control.now() + timeout_s
    for _ in range(2):
        if not watch.control.ended:
            watch.wait_until_free(RefusedError("refused", reason), deadline)


def test_a_job_whose_members_are_all_silent_for_evict_s_is_ended(monkeypatch):
    switch = Switch()
    with pytest.warns(
        AbandonedJobWarning, match=r"watched its members, ranks 0 and 1, for 1\.\d s, longer than .* 1 s"
    ):
        wait(watch_of(monkeypatch, switch))
    [when] = switch.ended
    assert EVICT_S <= when < EVICT_S + 0.3


def test_workers_that_start_again_do_not_refuse_each_other(monkeypatch):
    """Each takes a place between two answers to another one, which the job's row has named as that of a live member."""
    switch = Switch(world=3, evict_s=LONG_S, taken=TAKEN)
    with pytest.warns(AbandonedJobWarning):
        wait(watch_of(monkeypatch, switch, wanted=0))
    assert switch.joining == {1, 2} and LONG_S <= switch.ended[0] < LONG_S + 0.5


def test_a_worker_that_starts_again_does_not_show_that_the_job_lives(monkeypatch):
    switch = Switch(world=3, evict_s=LONG_S, taken={rank: 1.0 + at for rank, at in TAKEN.items()})
    switch.sleep(1.0)  # so no member has been heard for half of `evict_s`
    watch = watch_of(monkeypatch, switch, wanted=0)
    monkeypatch.setattr(watch, "_warn", lambda *_: None)
    permit = watch.wait_until_known(switch.clock + 60.0)
    assert not permit.alive and switch.joining == {1, 2} and switch.clock - 101.0 >= LONG_S

    switch.joining.clear()
    switch.taken = {0: 0.0, 1: 0.0, 2: 0.0}
    switch.sleep(1.0)
    assert not watch.is_alive() and switch.joining == {0, 1, 2}


def test_a_worker_waits_while_another_one_takes_its_rank_in_an_abandoned_job(monkeypatch):
    """The switch refuses its Join until the job has ended, so it sends none, and reads as seldom as before."""
    switch = Switch(world=2, taken={1: 0.5})
    watch = watch_of(monkeypatch, switch, wanted=1)
    reads = []
    monkeypatch.setattr(abandoned_job, "read_job", lambda *arguments: (reads.append(1), switch.read_job(*arguments))[1])
    with pytest.raises(RefusedError, match="rank 1 is taken"):
        wait(watch, timeout_s=10.0)
    assert 110 <= switch.clock < 111 and len(reads) < 100 and not switch.ended


def test_a_worker_of_another_program_waits_for_no_rank_of_an_abandoned_job(monkeypatch):
    """Its Join ends the job, whichever worker has the rank."""
    switch = Switch(world=2, taken={1: 0.5})
    with pytest.warns(AbandonedJobWarning):
        wait(watch_of(monkeypatch, switch, wanted=1), Reason.KEY)
    assert EVICT_S <= switch.ended[0] < EVICT_S + 0.3


@pytest.mark.parametrize("alive", [{0}, {1}, {0, 1}])
def test_a_job_with_a_live_member_is_not_ended(monkeypatch, alive):
    switch = Switch(alive=alive)
    with pytest.raises(RefusedError, match="and is alive") as refused:
        wait(watch_of(monkeypatch, switch))
    assert refused.value.reason == Reason.MEMBER and not switch.ended


def test_silence_during_an_outage_does_not_count(monkeypatch):
    switch = Switch(outage=(0.5, 3.0))
    with pytest.warns(AbandonedJobWarning):
        wait(watch_of(monkeypatch, switch))
    assert switch.ended[0] >= 3.0 + EVICT_S


def test_a_job_without_evict_s_is_not_ended(monkeypatch):
    switch = Switch(evict_s=0)
    with pytest.raises(RefusedError, match="it keeps its rank, because the job's `evict_s` is 0"):
        wait(watch_of(monkeypatch, switch))
    assert not switch.ended and switch.clock < 101


@pytest.mark.parametrize("alive", [(), {1}])
def test_a_job_with_another_key_ends_if_its_members_are_all_dead(monkeypatch, alive):
    switch = Switch(alive=alive)
    if not alive:
        with pytest.warns(AbandonedJobWarning):
            wait(watch_of(monkeypatch, switch), Reason.KEY)
    else:
        with pytest.raises(RefusedError, match=r"belongs to another program.*for example job=2, or ISWITCH_JOB=2 for"):
            wait(watch_of(monkeypatch, switch), Reason.KEY)
    assert bool(switch.ended) == (not alive)


def test_in_a_forming_job_the_switch_itself_gives_away_a_dead_rank(monkeypatch):
    switch = Switch(state=JobState.FORMING)
    watch_of(monkeypatch, switch, wanted=1).wait_until_free(RefusedError("refused", Reason.MEMBER), switch.clock + 60)
    assert not switch.ended and switch.clock - 100 > EVICT_S


def test_other_refusals_are_final(monkeypatch):
    switch = Switch()
    with pytest.raises(RefusedError, match="refused"):
        wait(watch_of(monkeypatch, switch), Reason.JOB)
    assert switch.clock == 100.0


def test_an_elastic_worker_looks_now_and_then_and_ends_a_dead_job(monkeypatch):
    switch = Switch()
    watch = watch_of(monkeypatch, switch)

    def check_until_ended():
        while not switch.ended:
            before = switch.clock
            watch.check(rank_taken=False)
            switch.sleep(0.02)
            assert switch.clock - before < 0.2 and switch.clock < 110

    with pytest.warns(AbandonedJobWarning):
        check_until_ended()
    assert EVICT_S <= switch.ended[0] < EVICT_S + 0.5


@pytest.mark.parametrize("alive", [(), {1}])
def test_a_permit_says_whether_the_switch_has_just_heard_a_live_member(monkeypatch, alive):
    """From the same look that permits the Join: a later one could find that a live member was silent for a moment."""
    switch = Switch(alive=alive)
    watch = watch_of(monkeypatch, switch)
    monkeypatch.setattr(watch, "_warn", lambda *_: None)
    permit = watch.wait_until_known(switch.clock + 60.0)
    assert permit.alive == bool(alive) and 0 < permit.seconds < EVICT_S / 2
    assert (switch.clock - 100.0 < 0.1) if alive else (switch.clock - 100.0 >= EVICT_S)


def check_for_10_s(watch):
    while watch.control.now() < 110:
        watch.check(rank_taken=True)
        watch.control.sleep(0.02)


def test_an_elastic_worker_whose_rank_has_a_live_owner_is_refused(monkeypatch):
    monkeypatch.setattr(abandoned_job, "_GRACE_S", 0.0)
    switch = Switch(alive={1})
    watch = watch_of(monkeypatch, switch, wanted=1)
    with pytest.raises(RefusedError, match="rank 1 is taken"):
        check_for_10_s(watch)
