"""A mutant differs in one place, and leaves the module as it is."""

import pytest

from sim.bench import hosts
from sim.bench.mutant import broken_promise, mutant
from sim.explore.search import Violation


def test_the_mutant_has_the_mutant_and_the_module_has_not():
    made = mutant(hosts, "0x020000000099 ^", "0x020000000098 ^")
    assert (made.crowd(64, 1), hosts.crowd(64, 1)) == ([bytes.fromhex("020000000098")], [bytes.fromhex("020000000099")])


@pytest.mark.parametrize("sound", ["no such words", "def "])
def test_sound_wrong(sound):
    with pytest.raises(
        ValueError, match=f"must name one place of sim.bench.hosts, but '{sound}' stands there (?!1 times)"
    ):
        mutant(hosts, sound, "")


def test_a_broken_promise_is_named_and_none_if_all_are_kept():
    def run():
        raise Violation("this one")

    assert (broken_promise(run), broken_promise(list)) == ("this one", "")
