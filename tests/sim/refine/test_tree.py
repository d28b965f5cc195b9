"""How far a leaf's report is the model's, as docs/verification.md says."""

import pytest

from sim.refine.comparison import Difference
from sim.refine.refinement import compiled
from sim.refine.tree import TreeCase, TreeRefinement


def reports(apart):
    """Compare the reports of a leaf whose members lack results up to `apart` seqs apart, and return the pairs."""
    case = TreeCase(seqs=tuple(range(apart + 1)), behinds=(0,), contents=())
    explorer = TreeRefinement(case, compiled(case.config()))
    explorer.run()
    explorer.compared.flush()
    return explorer.compared.pairs


def test_the_bound_of_a_leafs_report_is_the_one_that_the_page_states():
    """If the second part fails, the gateware reports right beyond the bound, and the page need not speak of one."""
    bound = 8 * TreeCase(seqs=()).window
    assert reports(bound - 1)
    with pytest.raises(Difference) as found:
        reports(bound)
    assert found.value.output == "decided_report_seq"
