"""The deterministic order of a training: the ticket of each request to the replay table.

In each round every actor adds once, in the order of their ranks. As soon as `learning_starts` items are in the table,
the learner then takes a whole number of steps; each is a SAMPLE and an UPDATE. In the next round the actors use the
parameters that the learner has published after these steps. So no process can run ahead: the learner cannot sample in
a round before all actors have added, and an actor waits for the version of its round.
"""

from dataclasses import dataclass

__all__ = ["Schedule", "Start"]

_TICKETS = 2**32 - 1
"""Tickets are 1 to 2^32 - 1, and then 1 again. 0 is no ticket."""


@dataclass(frozen=True)
class Start:
    """The state of a table when a training starts: its next ticket, and the version of its parameters."""

    ticket: int = 1
    version: int = 0


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Tickets and versions of all requests. Rounds and the learner's steps count from 0.

    Parameters
    ----------
    start : Start
        The table's state at the start.
    actors, add_size : int
        Actors, and the items that each of them adds in a round.
    batch_size : int
        Items of a SAMPLE.
    samples_per_insert : float
        Samples for each item that is added.
    learning_starts : int
        Items in the table before the learner's first step.
    publish_interval : int
        Steps of the learner between two versions of the parameters.
    tickets_per_add : int
        Tickets that an add takes: one for each datagram.

    Raises
    ------
    ValueError
        If a round is not a whole number of batches, or a version is not a whole number of rounds.
    """

    start: Start
    actors: int
    add_size: int
    batch_size: int
    samples_per_insert: float
    learning_starts: int
    publish_interval: int
    tickets_per_add: int = 1

    def __post_init__(self) -> None:
        samples = self.actors * self.add_size * self.samples_per_insert
        if samples < self.batch_size or samples % self.batch_size:
            raise ValueError(
                f"in deterministic order actors * add_size * samples_per_insert must be a multiple of batch_size, "
                f"{self.batch_size}, not {samples:g}"
            )
        if self.publish_interval % self.steps:
            raise ValueError(
                f"in deterministic order publish_interval must be a multiple of {self.steps}, the steps of a round, "
                f"not {self.publish_interval}"
            )

    @property
    def steps(self) -> int:
        """Steps of the learner in each round after the first `warmup_rounds`."""
        return round(self.actors * self.add_size * self.samples_per_insert) // self.batch_size

    @property
    def warmup_rounds(self) -> int:
        """Rounds in which only the actors send requests."""
        return -(-self.learning_starts // (self.actors * self.add_size))

    @property
    def _add_tickets(self) -> int:
        """Tickets of all adds in a round."""
        return self.actors * self.tickets_per_add

    def _first(self, round_: int) -> int:
        """Tickets before a round."""
        return round_ * self._add_tickets + max(0, round_ - self.warmup_rounds) * 2 * self.steps

    def _ticket(self, index: int) -> int:
        """Return the ticket with this index since the start."""
        return (self.start.ticket + index - 1) % _TICKETS + 1

    def add(self, round_: int, actor: int) -> int:
        """Return the first ticket of an actor's add."""
        return self._ticket(self._first(round_) + actor * self.tickets_per_add)

    def sample(self, step: int) -> int:
        """Return the ticket of a step's SAMPLE."""
        round_, within = divmod(step, self.steps)
        return self._ticket(self._first(self.warmup_rounds + round_) + self._add_tickets + 2 * within)

    def update(self, step: int) -> int:
        """Return the ticket of a step's UPDATE."""
        round_, within = divmod(step, self.steps)
        return self._ticket(self._first(self.warmup_rounds + round_) + self._add_tickets + 2 * within + 1)

    def version(self, round_: int) -> int:
        """Return the version of the parameters that the actors use in a round."""
        rounds = max(0, round_ - self.warmup_rounds)
        return self.start.version + 1 + rounds * self.steps // self.publish_interval
