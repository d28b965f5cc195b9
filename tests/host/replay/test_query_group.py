"""Reads whose usual case is in C are those of Python: the same frames at the same times, and the same batches."""

import shutil

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.native.loader import SOURCES, best_level, build, load
from iswitch.replay import Field, ReplayClient, channel, query_group, request_ring
from iswitch.replay.query_group import QueryGroup
from iswitch.wire.replay import FETCH_ROW, PAYLOAD_BYTES, UNIT_BYTES, Kind
from sim.bench.replay_network import Network

REPLAY = Replay(capacity=256, sessions=4, cached_answers=4, samples_per_request=256, log_bytes=1 << 20)
PER_FETCH = PAYLOAD_BYTES // 64
SPECS = {
    "records": {"number": Field((), np.int64), "vector": Field((5,), np.float32)},
    "log": {"number": Field((), np.int64), "blob": Field((400,), np.float32)},
    "frames": {"number": Field((), np.int64), "stack": Field((3, 40, 40), np.uint8, stacked=3)},
}
FAULTS = [{}, {"doubled": 1.0}, {"late": 0.4}, {"loss": 0.2}, {"loss": 0.1, "doubled": 0.3, "late": 0.3}]


def transitions(spec, first, count):
    made = {"number": np.arange(first, first + count)}
    for name, field in spec.items():
        if name != "number":
            frames = np.arange(first, first + count).reshape(-1, *[1] * len(field.axes))
            made[name] = np.broadcast_to(frames % 251, (count, *field.axes)).astype(field.wire_dtype)
    return made


def traffic(spec, counts, *, seed=1, config=REPLAY, **faults):
    """Add and sample; return every payload with its time, and all batches."""
    net = Network(Config(ports=4, members=4, replay=config), seed=seed, **faults)
    carried, batches = [], []
    net.lose = lambda payload, there: bool(carried.append((net.now, there, payload)))
    with ReplayClient(net.transport(), spec) as client, ReplayClient(net.transport(), spec) as other:
        prefetch, told = None, 0
        for count in counts:
            data = transitions(spec, told, count)
            told += count
            client.extend(data, np.full(count, 2.0))
            other.extend(data, np.full(count, 1.0))
            client.flush()
            other.flush()
            batches.append(client.sample(count, seed=count))
            batches.append(client.fifo(min(count, 8)).read(min(count, 8)))
            prefetch = prefetch or other.prefetch(16, depth=3, seed=5)
            batches.append(next(prefetch))
            client.update_priority(batches[-1].items, np.full(16, 3.0))
    return carried, [(batch.items.tolist(), {k: v.tolist() for k, v in batch.data.items()}) for batch in batches]


def use(monkeypatch, library):
    """Use a library, or None."""
    for module in (query_group, channel, request_ring):
        monkeypatch.setattr(module, "compiled_library", lambda: library)


@pytest.mark.parametrize("faults", FAULTS, ids=str)
@pytest.mark.parametrize("kind", SPECS)
def test_frames_times_and_batches_are_those_of_python(kind, faults, monkeypatch):
    groups, begin = [], QueryGroup.begin
    monkeypatch.setattr(QueryGroup, "begin", lambda self, **o: groups.append(self) or begin(self, **o))
    counts = [1, PER_FETCH - 1, PER_FETCH, PER_FETCH + 1, 2 * PER_FETCH, 100] if kind == "records" else [1, 40, 23]
    compiled = traffic(SPECS[kind], counts, **faults)
    assert any(group.taken for group in groups), "nothing was read in C"
    use(monkeypatch, None)
    assert compiled == traffic(SPECS[kind], counts, **faults)


def test_what_is_overwritten_meanwhile_is_told_as_by_python(monkeypatch):
    """Two clients add faster than one reads, so that FETCH and LOAD find items and units overwritten."""

    def batches():
        net = Network(Config(ports=4, members=4, replay=Replay(capacity=64, sessions=4, log_bytes=1 << 18)), late=0.3)
        found = []
        with (
            ReplayClient(net.transport(), SPECS["log"]) as reader,
            ReplayClient(net.transport(), SPECS["log"]) as adder,
        ):
            adder.extend(transitions(SPECS["log"], 0, 40)).items.tolist()
            prefetch = reader.prefetch(32, depth=2, seed=7)
            for turn in range(12):
                adder.extend(transitions(SPECS["log"], 40 * turn, 33))
                batch = next(prefetch)
                found.append((batch.items.tolist(), batch.overwritten.tolist(), batch.data["blob"].tolist()))
        return found

    compiled = batches()
    assert any(any(overwritten) for _, overwritten, _ in compiled)
    use(monkeypatch, None)
    assert compiled == batches()


def group_of(count, limit=PER_FETCH):
    """A group of FETCH that is begun, and all requests built."""
    rows = np.zeros(count, FETCH_ROW)
    firsts = np.arange(0, count, limit)
    counts = np.minimum(limit, count - firsts)
    group = QueryGroup(
        Kind.FETCH,
        counts=counts,
        bodies=rows,
        body_rows=counts,
        target=np.zeros((count, UNIT_BYTES), np.uint8),
        target_at=firsts * UNIT_BYTES,
        target_bytes=counts * UNIT_BYTES,
        on_reply=lambda k, reply: None,
    )
    assert group.begin(session=1, token=0xABCD, first_tag=2**32 - 1, largest_window=256.0)
    group.state.window = 8.0
    return group


def data(k, count, *, seq_offset=2**32 - 1, token=0xABCD, kind=Kind.FETCH, ticket=0, body=None):
    body = bytes([k + 1]) * (count * UNIT_BYTES) if body is None else body
    head = bytes([query_group.version_type(query_group.Type.DATA), kind, 1, 0])
    head += ((seq_offset + k) % 2**32).to_bytes(4, "little") + count.to_bytes(2, "little") + bytes(2)
    return head + ticket.to_bytes(4, "little") + token.to_bytes(4, "little") + bytes(2) + body + bytes(8)


@pytest.mark.parametrize(
    "wrong",
    [
        data(0, 22, token=0xABCE),
        data(0, 22, kind=Kind.LOAD),
        data(0, 22, ticket=1),
        data(0, 22)[:-1],
        data(0, 22) + b"\0",
        data(0, 22, body=b""),
        data(0, 22)[:21],
        data(0, 22)[:1],
        data(2, 6),  # not sent yet
        data(-1, 22),
        data(3, 22),
        data(0, 22, seq_offset=77),
        bytes([query_group.version_type(query_group.Type.ANSWER)]) + data(0, 22)[1:],
    ],
    ids=range(13),
)
def test_every_other_datagram_is_left_to_python_and_changes_nothing(wrong):
    group, good = group_of(50), data(1, 22)
    assert group.build(1, 1.0)[1] == 1 == group.build(1, 2.0)[1]
    assert group.take(memoryview(bytearray(wrong)), len(wrong), len(wrong), 0, 3.0) == 0
    assert not group.taken and not group.target.any()
    if len(wrong) <= len(good):
        assert group.take(memoryview(bytearray(good + wrong)), len(good + wrong), len(good), 0, 3.0) == len(good)
        assert group.answered.tolist() == [False, True, False]
        assert group.target[22:44].all() and not group.target[:22].any() and not group.target[44:].any()


def test_a_reply_that_comes_again_is_left_to_python():
    group = group_of(22)
    group.build(1, 1.0)
    burst = data(0, 22) + data(0, 22)
    assert group.take(memoryview(bytearray(burst)), len(burst), len(burst) // 2, 0, 1.5) == len(burst) // 2
    assert group.taken == group.state.reach == 1 and group.delays[0] == 0.5


def test_a_group_whose_replies_do_not_fit_its_target_is_refused():
    with pytest.raises(ValueError, match="replies must fit"):
        QueryGroup(
            Kind.FETCH,
            counts=np.array([2]),
            bodies=np.zeros(2, FETCH_ROW),
            body_rows=np.array([2]),
            target=np.zeros(127, np.uint8),
            target_at=np.array([0]),
            target_bytes=np.array([128]),
            on_reply=lambda k, reply: None,
        )


@pytest.mark.mutant
@pytest.mark.parametrize(
    "right, wrong",
    [
        ("g->first_tag + k)", "g->first_tag + k + (k == 1))"),
        ("if (k >= g->reach) g->reach = k + 1;", ""),
        ("wider < g->largest_window ? wider : g->largest_window", "g->window"),
        ("- ((const double *)g->sent_at)[k]", "- ((const double *)g->sent_at)[0]"),
        ("u32_at(datagram + REPLAY_TICKET_AT) != 0", "0"),
    ],
)
def test_a_mutant_of_the_reads_is_noticed(right, wrong, tmp_path, monkeypatch):
    sources = tmp_path / "sources"
    shutil.copytree(SOURCES, sources)
    text = (sources / "replay.c").read_text()
    assert text.count(right) == 1
    (sources / "replay.c").write_text(text.replace(right, wrong))
    made = load(build(tmp_path, ["cc"], best_level(), sources=sources))
    use(monkeypatch, made)
    with pytest.raises((AssertionError, ValueError)):
        test_a_reply_that_comes_again_is_left_to_python()
        for faults in reversed(FAULTS):
            use(monkeypatch, made)
            test_frames_times_and_batches_are_those_of_python("records", faults, monkeypatch)
        use(monkeypatch, made)
        test_what_is_overwritten_meanwhile_is_told_as_by_python(monkeypatch)
