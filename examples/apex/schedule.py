"""The order of a training in lockstep: which ticket of the table belongs to which operation of which process.

In a round every actor adds once, in the order of their ranks. Then, once `warmup` items are there, the learner takes a
whole number of steps, each a SAMPLE and an UPDATE. What the learner publishes after its steps is what actors use from
the next round on: nobody can run ahead of it, because the learner cannot draw in a round before all actors have added,
and an actor of a round waits for the version that belongs to it.
"""

from dataclasses import dataclass

from examples.apex.options import Options, Start

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """Rounds and a learner's steps count from 0. turns_per_add: of the table, that an actor's adding takes: one for
    each datagram. ValueError if the options do not make whole rounds."""

    options: Options
    start: Start
    turns_per_add: int = 1

    def __post_init__(self) -> None:
        drawn = self.options.actors * self.options.add_items * self.options.ratio
        if drawn < self.options.batch or drawn % self.options.batch:
            raise ValueError(
                f"in lockstep actors * add_items * ratio must be a multiple of batch, {self.options.batch}, not {drawn:g}"
            )
        if self.options.publish_every % self.steps:
            raise ValueError(
                f"in lockstep publish_every must be a multiple of {self.steps}, the steps of a round, "
                f"not {self.options.publish_every}"
            )

    @property
    def steps(self) -> int:
        """Of the learner in each round that is not for warming up."""
        return round(self.options.actors * self.options.add_items * self.options.ratio) // self.options.batch

    @property
    def warm_rounds(self) -> int:
        """Rounds in which only actors do something."""
        return -(-self.options.warmup // (self.options.actors * self.options.add_items))

    @property
    def _adding(self) -> int:
        """Turns in which all actors add."""
        return self.options.actors * self.turns_per_add

    def _first(self, round_: int) -> int:
        return round_ * self._adding + max(0, round_ - self.warm_rounds) * 2 * self.steps

    def _ticket(self, operation: int) -> int:
        """Of the operation-th operation; 2^32 - 1 is followed by 1."""
        return (self.start.ticket + operation - 1) % (2**32 - 1) + 1

    def add(self, round_: int, actor: int) -> int:
        """The first of the tickets in which an actor adds."""
        return self._ticket(self._first(round_) + actor * self.turns_per_add)

    def sample(self, step: int) -> int:
        round_, within = divmod(step, self.steps)
        return self._ticket(self._first(self.warm_rounds + round_) + self._adding + 2 * within)

    def update(self, step: int) -> int:
        round_, within = divmod(step, self.steps)
        return self._ticket(self._first(self.warm_rounds + round_) + self._adding + 2 * within + 1)

    def version(self, round_: int) -> int:
        """Of the parameters that actors use in a round."""
        return self.start.version + 1 + max(0, round_ - self.warm_rounds) * self.steps // self.options.publish_every
