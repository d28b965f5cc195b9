"""Cases are made once, and no earlier than a check comes to them."""

from sim.bench.on_demand import OnDemand


def test_items_are_those_of_the_iterable_each_made_once_and_when_it_is_read():
    made = []
    items = OnDemand(made.append(k) or k * k for k in range(5))
    assert not made
    first, other = iter(items), iter(items)
    assert [next(first), next(first), next(other)] == [0, 1, 0] and made == [0, 1]
    assert list(other) == [1, 4, 9, 16] and list(first) == [4, 9, 16]
    assert list(items) == [0, 1, 4, 9, 16] and made == [0, 1, 2, 3, 4]
