"""Every law of the catalogue holds, and every proof notices its mutants."""

from pathlib import Path

import pytest

from sim.prove.catalogue import PROOFS, table

PAGE = Path(__file__).parents[3] / "docs" / "verification.md"


def cases(pairs):
    """Mark as slow what is searched in all traces of some length: `make prove` runs these in minutes."""
    return [
        pytest.param(*values, marks=[] if proof.induction is not None else [pytest.mark.slow], id=name)
        for proof, values, name in pairs
    ]


@pytest.mark.parametrize("proof", cases((proof, (proof,), proof.law) for proof in PROOFS))
def test_a_law_holds(proof):
    proof.prove()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("proof", "original", "wrong"),
    cases((proof, (proof, *pair), f"{proof.law}-{pair[1]}") for proof in PROOFS for pair in proof.mutants),
)
def test_a_mutant_is_noticed(proof, original, wrong):
    assert proof.notices(original, wrong) is not None


def test_every_law_has_a_mutant_and_a_name_of_its_own():
    assert all(proof.mutants for proof in PROOFS)
    assert len({proof.law for proof in PROOFS}) == len(PROOFS)


def test_the_page_shows_the_catalogue():
    assert table() in PAGE.read_text(), "write the output of `python -m sim.prove --table` into docs/verification.md"
