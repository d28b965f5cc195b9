"""The limit on samples of an item in every state, and the wrong rules that the explorer must find."""

import pytest

from iswitch.golden.replay.table import Table
from sim.explore.replay_items import ItemExplorer, ItemScenario
from sim.explore.search import Violation

AGAIN = "an item that was sampled as often as allowed has a priority above 0 again"


def explore(scenario: ItemScenario) -> int:
    return ItemExplorer(scenario).run().count


def test_an_item_is_never_sampled_more_often_than_its_table_allowed():
    assert explore(ItemScenario()) > 20


class ForgetsRetirement(Table):
    """The count of an item that is retired stays as it is, so a higher limit revives the item."""

    def count_samples(self, rows):
        retired, self.retired = self.retired, self.limits.times
        super().count_samples(rows)
        self.retired = retired


class UpdatesAll(Table):
    """An UPDATE looks at no count."""

    def update(self, item, priority):
        self.set_priority(item % self.capacity, priority)
        return True


class LooksAtTheLimitOnly(Table):
    """An UPDATE compares the count with the present limit; without a limit every item may come back."""

    def update(self, item, priority):
        spent = self.limits.times and self.times[item % self.capacity] >= self.limits.times
        self.set_priority(item % self.capacity, 0 if spent else priority)
        return True


class ForgetsCounts(Table):
    """LIMIT sets the counts to 0."""

    def limit(self, limits):
        self.times = [0] * self.capacity
        return super().limit(limits)


class TrustsCounts(Table):
    """A count with a bit error is used as it is."""

    def update(self, item, priority):
        self.damaged_counts.clear()
        return super().update(item, priority)

    def count_samples(self, rows):
        self.damaged_counts.clear()
        super().count_samples(rows)


class RepairsCounts(Table):
    """A count with a bit error is set to 0, and the item may be sampled as often as a new one."""

    def count_samples(self, rows):
        for slot in self.damaged_counts:
            self.times[slot] = 0
        self.damaged_counts.clear()
        super().count_samples(rows)


@pytest.mark.parametrize(
    "table", [ForgetsRetirement, UpdatesAll, LooksAtTheLimitOnly, ForgetsCounts, TrustsCounts, RepairsCounts]
)
def test_a_wrong_rule_is_found(table):
    with pytest.raises(Violation, match=AGAIN):
        explore(ItemScenario(table=table))
