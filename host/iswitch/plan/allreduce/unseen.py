"""Schedulers on random networks on which no policy was trained, counted by family."""

from typing import NamedTuple

from iswitch.plan.allreduce.compare import compare_schedulers
from iswitch.plan.allreduce.model.random_networks import build_random_network

__all__ = ["UNSEEN_HEADER", "FamilyCount", "count_family"]

UNSEEN_HEADER = (
    f"{'family':27}{'networks':>9}{'learned: shorter':>18}{'equal':>7}{'longer':>8}{'rounds':>8}{'best of k':>11}"
    f"{'ring':>7}{'bound':>7}{'emitted longer':>16}"
)


class FamilyCount(NamedTuple):
    """The networks of a family on which the learned scheduler needs fewer rounds than the best of k greedy episodes,
    as many, and more; the rounds of each scheduler over all networks, and their bounds; and on how many networks the
    schedule that is emitted is longer than that of any scheduler."""

    family: str
    shorter: int
    equal: int
    longer: int
    learned: int
    best_greedy: int
    ring: int
    bound: int
    emitted_longer: int

    @property
    def text(self) -> str:
        """The counts as a row below `UNSEEN_HEADER`."""
        networks = self.shorter + self.equal + self.longer
        return (
            f"{self.family:27}{networks:9}{self.shorter:18}{self.equal:7}{self.longer:8}{self.learned:8}"
            f"{self.best_greedy:11}{self.ring:7}{self.bound:7}{self.emitted_longer:16}"
        )

    def __add__(self, other: object) -> "FamilyCount":
        """Return the sum of both counts; the family is that of the first."""
        if not isinstance(other, FamilyCount):
            return NotImplemented
        return FamilyCount(self.family, *(a + b for a, b in zip(self[1:], other[1:])))


def count_family(family: str, networks: int, *, k: int = 16, seed: int = 0, first: int = 1) -> FamilyCount:
    """Schedule networks of a family, and count.

    Parameters
    ----------
    family : str
        A name of `RANDOM_FAMILIES`.
    networks : int
        Number of networks.
    k : int
        Episodes of the greedy and of the learned scheduler.
    seed : int
        Seed of the schedulers.
    first : int
        Seed of the first network.
    """
    if networks < 1:
        raise ValueError(f"count_family networks must be at least 1, not {networks!r}")
    total = FamilyCount(family, *[0] * (len(FamilyCount._fields) - 1))
    for number in range(first, first + networks):
        found = compare_schedulers(build_random_network(family, number), k=k, seed=seed)
        rounds = {name: schedule.length for name, schedule in found.schedules.items()}
        learned, greedy = rounds["learned"], rounds[f"greedy, best of {k}"]
        longer = found.best.length > min(rounds.values())
        total += FamilyCount(
            family,
            *(int(learned < greedy), int(learned == greedy), int(learned > greedy)),
            *(learned, greedy, rounds["ring"], found.bounds.best, int(longer)),
        )
    return total
