"""The short tier holds every law, and the shards hold every case once."""

import pytest

from sim.bench import tiers
from sim.bench.tiers import CHEAP_S, LIMIT_S

CASES = [
    "a::cheap[1]",
    "a::cheap[2]",
    "a::new",
    "b::middling[x]",
    "b::middling[y]",
    "b::dear[1]",
    "b::dear[2]",
    "c::slow[1]",
    "c::slow[2]",
]
SLOW = {"c::slow[1]", "c::slow[2]"}
SECONDS = {
    "a::cheap[2]": CHEAP_S,
    "b::middling[x]": 2.0,
    "b::middling[y]": 1.0,
    "b::dear[1]": LIMIT_S + 1,
    "b::dear[2]": LIMIT_S + 2,
    "c::slow[2]": 90.0,
}


def test_a_law_is_there_by_its_cheapest_case_and_by_all_cheap_ones():
    assert tiers.short(CASES, SECONDS, slow=SLOW) == {"a::cheap[1]", "a::cheap[2]", "a::new", "b::middling[y]"}


def test_what_is_too_slow_is_named():
    assert tiers.laws_without(CASES, tiers.short(CASES, SECONDS, slow=SLOW)) == ["b::dear", "c::slow"]


def test_the_list_has_a_line_for_each_file():
    assert tiers.listed(["a.py::test_one_thing", "a.py::test_another", "b.py::test_third"]) == [
        "- `a.py`: one thing; another",
        "- `b.py`: third",
    ]


def test_a_case_that_gets_slower_gives_its_place_to_the_next():
    assert "b::middling[x]" in tiers.short(CASES, {**SECONDS, "b::middling[y]": 3.0}, slow=SLOW)


def test_a_case_with_stalls_stands_for_its_law_unless_it_is_too_slow():
    assert "b::middling[x]" in tiers.short(CASES, SECONDS, slow=SLOW, stalled={"b::middling[x]"})
    assert "b::middling[y]" in tiers.short(
        CASES, {**SECONDS, "b::middling[x]": LIMIT_S + 1}, slow=SLOW, stalled={"b::middling[x]"}
    )


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_each_case_is_in_one_shard(count):
    shards = [tiers.shard(CASES, SECONDS, number, count, slow=SLOW) for number in range(1, count + 1)]
    assert sorted(case for shard in shards for case in shard) == sorted(CASES)


def test_shards_differ_by_no_more_than_the_longest_case():
    cases = [f"d::law[{k}]" for k in range(100)]
    seconds = {case: 0.2 + k * 37 % 11 for k, case in enumerate(cases)}
    sums = [sum(seconds[case] for case in tiers.shard(cases, seconds, number, 4)) for number in range(1, 5)]
    assert max(sums) - min(sums) <= max(seconds.values())


@pytest.mark.parametrize("number, count", [(0, 2), (3, 2), (1, 0)])
def test_shard_wrong(number, count):
    with pytest.raises(ValueError, match=f"1 to {count} of {count}, not {number}"):
        tiers.shard(CASES, SECONDS, number, count, slow=SLOW)


def test_durations_are_kept_of_what_exists_and_is_not_cheap(tmp_path):
    kept = tiers.merged({"a": 3.04, "gone": 9.0, "c": 5.0}, {"b": 0.05, "c": 0.14, "d": 0.26}, {"a", "b", "c", "d"})
    assert kept == {"a": 3.0, "c": 0.1, "d": 0.3}
    tiers.write(path := tmp_path / "durations.json", kept)
    assert tiers.read(path) == kept


def test_without_a_file_nothing_is_known(tmp_path):
    assert tiers.read(tmp_path / "none.json") == {}
