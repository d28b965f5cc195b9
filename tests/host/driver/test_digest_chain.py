import numpy as np

from iswitch.driver.digest_chain import DigestChain


def chain_of(*sums, staleness=1, masks=3):
    chain = DigestChain(staleness)
    for number, value in enumerate(sums):
        chain.extend(number, np.array([masks], np.uint32), np.array([value], np.float32))
    return chain


def test_equal_updates_have_equal_digests():
    assert chain_of(1, 2, 3).latest == chain_of(1, 2, 3).latest


def test_an_update_changes_all_digests_after_it():
    digests = [chain_of(*sums).latest for sums in ((1, 2, 3), (9, 2, 3), (1, 2, 9))] + [
        chain_of(1, 2, 3, masks=1).latest
    ]
    assert len(set(digests)) == 4


def test_only_digests_that_a_vector_can_refer_to_are_kept():
    chain = chain_of(*range(6), staleness=2)
    assert [chain.after(updates) != bytes(32) for updates in range(7)] == [False] * 3 + [True] * 4


def test_matches_compares_the_beginning_of_the_digest():
    ours, theirs, other = chain_of(1, 2), chain_of(1, 2), chain_of(1, 3)
    assert ours.matches(2, theirs.latest[:8]) is True
    assert ours.matches(2, other.latest[:8]) is False
    assert ours.matches(7, theirs.latest[:8]) is False  # more updates than there are


def test_a_worker_does_not_compare_updates_from_before_it_joined():
    chain = DigestChain(1)
    chain.restart(5, chain_of(1).latest)
    assert chain.matches(4, bytes(8)) is None
    assert chain.matches(5, chain_of(1).latest[:8]) is True
