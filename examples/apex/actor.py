"""An actor: plays with the newest parameters, and adds what it sees with priorities of its own."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from examples.apex.options import STOP, Options, Start
from examples.apex.play import Games
from examples.apex.schedule import Schedule
from examples.apex.store import Replay

__all__ = ["ActorProgress", "act"]

WAIT_S = 60.0
"""For parameters, without which an actor cannot go on."""
_REPORT_S = 0.5


@dataclass(frozen=True, kw_only=True)
class ActorProgress:
    """rank; steps and episodes of its games so far; the mean of the latest returns; the version it plays with; what it
    added and pushed."""

    rank: int
    steps: int
    episodes: int
    mean_return: float
    version: int
    items: int
    bytes_pushed: int


def act(
    replay: Replay, options: Options, rank: int, start: Start, report: Callable[[ActorProgress], Any] = lambda _: None
) -> ActorProgress:
    """Plays until the learner publishes its end. TimeoutError if it publishes nothing."""
    games, schedule = (
        Games(options, rank),
        Schedule(options, start, replay.tickets(options.add_items)) if options.lockstep else None,
    )
    version, rounds, told = start.version, 0, time.monotonic()

    def progress() -> ActorProgress:
        returns = list(games.returns)
        return ActorProgress(
            rank=rank,
            steps=games.steps,
            episodes=games.episodes,
            mean_return=sum(returns) / len(returns) if returns else 0.0,
            version=version,
            items=rounds * options.add_items,
            bytes_pushed=replay.statistics().bytes_sent,
        )

    while True:
        needed = schedule.version(rounds) if schedule else start.version + 1
        late = version < needed
        if (
            found := replay.get_parameters(newer_than=version, timeout_s=WAIT_S if late else 0.0)
            if late or not schedule
            else None
        ):
            version, payload = found
            if payload.startswith(STOP):
                replay.flush()
                return progress()
            games.network.load(np.frombuffer(payload, np.float32, games.network.size))
        elif late:
            raise TimeoutError(
                f"actor {rank} waited {WAIT_S:g} s for version {needed} of the parameters, and has {version}"
            )
        columns, priorities = games.play(options.add_items)
        replay.extend(columns, priorities, ticket=schedule.add(rounds, rank) if schedule else 0)
        rounds += 1
        if time.monotonic() - told >= _REPORT_S:
            told = time.monotonic()
            report(progress())
