"""Errors that cross the border of a process: with multiprocessing, concurrent.futures or Ray, they are pickled."""

import pickle

import pytest

from iswitch import errors
from iswitch.replay import errors as replay_errors
from iswitch.wire.control import Reason
from iswitch.wire.replay import ReplayOutcome

ARGUMENTS = {
    "RefusedError": (next(iter(Reason)),),
    "NotServedError": (ReplayOutcome.RATE,),
    "CollectiveTimeoutError": ({"lost": 3},),
    "TaintedError": ([1.0, 2.0],),
}
KINDS = [
    kind
    for module in (errors, replay_errors)
    for kind in (getattr(module, name) for name in module.__all__)
    if issubclass(kind, errors.IswitchError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_comes_out_of_another_process_as_it_was_raised(kind):
    raised = kind("the switch does not answer", *ARGUMENTS.get(kind.__name__, ()))
    raised.added_later = 5
    got = pickle.loads(pickle.dumps(raised))
    assert type(got) is kind and str(got) == str(raised) == "the switch does not answer"
    assert got.__dict__ == raised.__dict__ and got.args == raised.args
