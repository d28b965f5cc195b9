"""Checks of headers against the golden service; every plausible mutant is killed."""

import random

import pytest

import hw.replay.request.header_check
from hw.replay.request.header_check import HeaderCheck
from iswitch.config import Replay
from iswitch.golden.replay import frames
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import BODY_BYTES, ORDERED, REPLAY_HEADER, Kind, ReplayOutcome
from sim.bench.mutant import mutant
from sim.bench.replay_client import record
from sim.bench.replay_decisions import LARGE, PARAMETER_ROWS_OF, TYPICAL, Decisions, frame_of, outputs


def check_header(replay=TYPICAL, *, part=HeaderCheck, count=4000, seed=1):
    """Compare headers of any kind, table, count and length, of which mostly one at a time is wrong."""
    rng, service, headers, lengths, expected = random.Random(seed), Decisions(replay), [], [], []
    for _ in range(count):
        kind = rng.choice([*Kind, 15, 16, 17, 128, 255])
        head, each, most = service.body_shape(Kind(kind)) if kind in tuple(Kind) else (0, 0, 0)
        units = rng.choice([0, 1, most, most, rng.randint(0, most), most + 1, 256, 256 + most, 0xFFFF])
        length = (head + each * units) % (BODY_BYTES + 80) + rng.choice([0] * 6 + [-8, 8, 1, -1, 4, 64])
        if rng.random() < 0.2:  # as long as it would be if only the count's lower half were looked at
            length = head + each * (units % 256) if head + each * (units % 256) <= BODY_BYTES else length
        values = {
            "kind": kind,
            "table": rng.choice(
                [0, replay.tables - 1, replay.tables - 1, replay.tables, 255] if rng.random() < 0.3 else [0]
            ),
            "count": units,
            "seq": rng.getrandbits(32),
            "session": rng.getrandbits(8),
        }
        length = max(length, 0)
        asked = frames.parse_request(record(REPLAY_HEADER, **values) + bytes(length))
        headers.append(frame_of(values))
        lengths.append(FRAME_BYTES + length)
        outcome = service.format_fault(asked) or ReplayOutcome.DONE
        expected.append((outcome, outcome != ReplayOutcome.DONE, PARAMETER_ROWS_OF.get(kind, 0), kind in ORDERED))
    # A frame's length comes a cycle before its header.
    cases = [{"frame": frame, "length": behind} for frame, behind in zip([0, *headers], [*lengths, 0], strict=True)]
    assert outputs(part, replay, cases, ("outcome", "fault", "parameter_rows", "ordered"))[1:] == expected
    return {outcome for outcome, *_ in expected}


@pytest.mark.parametrize(
    ("replay", "seed"), [(TYPICAL, 1), (LARGE, 2), (Replay(tables=4, samples_per_request=2048, record_bytes=1024), 3)]
)
def test_a_header_is_malformed_where_the_model_says_so(replay, seed):
    assert check_header(replay, seed=seed) == {
        ReplayOutcome.DONE,
        ReplayOutcome.KIND,
        ReplayOutcome.TABLE,
        ReplayOutcome.LENGTH,
    }


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("kind > max(Kind)", "kind > max(Kind) + 1"),
        ("kind > max(Kind)", "kind[:4] > max(Kind)"),
        ("frame.table >= replay.tables", "frame.table > replay.tables"),
        ("wrong_length.eq(~length_fits)", "wrong_length.eq(0)"),
        ("| too_many", ""),
        ("count > most", "count >= most"),
        ("count > most", "count[:8] > most"),
        ("| too_few", ""),
        ("& count_required)", ")"),
        ("(HEADER_ROWS + before)", "(HEADER_ROWS + before + 1)"),
        ("whole_rows & ", ""),
        ("m.d.sync += whole_rows.eq", "m.d.comb += whole_rows.eq"),
        ("Kind.LIMIT: (0, 0, 3)", "Kind.LIMIT: (0, 0, 2)"),
        ("Kind.FETCH: (replay.records", "Kind.FETCH: (22"),
        ("Kind.LIST: (SAMPLES_PER_FRAGMENT, 0", "Kind.LIST: (SAMPLES_PER_FRAGMENT, 1"),
        ("item_rows = 1 +", "item_rows ="),
        ("Kind.LIST: 1, Kind.SHOUT: 1, Kind.REBUILD: 1}", "Kind.LIST: 1, Kind.REBUILD: 1}"),
        ("kind.matches(*ORDERED)", "kind <= Kind.SKIP"),
        ("self.outcome != ReplayOutcome.DONE)", "self.outcome == ReplayOutcome.LENGTH)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.request.header_check, sound, wrong).HeaderCheck
    with pytest.raises(AssertionError):
        check_header(part=broken)
        check_header(LARGE, part=broken)
