"""A program that starts again after all its workers were killed, with every loss and delay of the switch's answers."""

import pytest

from iswitch.wire import NO_MEMBER, MemberState
from sim.explore.restart import RestartExplorer
from sim.explore.restart_scenario import RestartScenario
from sim.explore.search import Violation

BAD_LINK = RestartScenario((0, 1, 2), world=3, slow=(2,), met_members=True)
EXTRA_WORKER = RestartScenario((0,), alive=0b11, outage=True)
OTHER_PROGRAM = EXTRA_WORKER.replace(other_program=True)
ONE_LIVES = RestartScenario((1, 0), alive=0b01, outage=True)
FREE_INDEX = RestartScenario((1,), alive=0b01, left=0b10, outage=True)

RIGHT = {
    "two": (701, RestartScenario((0, 1), met_members=True)),
    "two anywhere": (645, RestartScenario((NO_MEMBER,) * 2, met_members=True)),
    "three of which one has a bad link": (22967, BAD_LINK),
    "three anywhere, of which one has a bad link": (14071, BAD_LINK.replace(wanted=(NO_MEMBER,) * 3)),
    "two, and another one of a rank": (18971, RestartScenario((0, 1, 1))),
    "a worker comes to members that live": (91, EXTRA_WORKER),
    "a worker comes anywhere to members that live": (91, EXTRA_WORKER.replace(wanted=(NO_MEMBER,))),
    "a worker of another program comes to members that live": (91, OTHER_PROGRAM),
    "two of another program come": (104, RestartScenario((0, 1), other_program=True)),
    "both start again, but one member lives": (865, ONE_LIVES),
    "a worker comes to a member that lives beside a free index": (29, FREE_INDEX),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_program_starts_again_and_no_job_that_lives_is_touched(name):
    states, scenario = RIGHT[name]
    assert RestartExplorer(scenario).run().count == states


def every_row(standing):
    """An earlier rule: a row shows a live member, although another worker may have its place."""
    return standing != MemberState.NONE


def no_row(standing):
    return False


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("scenario", "mutant", "promise"),
    [
        (BAD_LINK, {"shows_live_member": every_row}, "a worker of a program that starts again is refused"),
        (RIGHT["two"][1], {"shows_live_member": no_row}, "workers wait forever"),
        (EXTRA_WORKER, {"watches": False}, "a member that lives loses its place"),
        (OTHER_PROGRAM, {"permits_end": False}, "a member that lives loses its place"),
        (FREE_INDEX, {"probes": False}, "a worker enters a job that lives"),
    ],
    ids=["every row counts", "no row counts", "silence at once", "a permit that does not end", "no probe"],
)
def test_mutant_is_found(scenario, mutant, promise):
    with pytest.raises(Violation, match=promise):
        RestartExplorer(scenario.replace(**mutant)).run()
