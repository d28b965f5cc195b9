"""Atari frames through the switch: every frame is pushed once, however many stacks it is in, and what is drawn is what
was pushed.

One process with two clients. An actor's plays a game with a convolutional network, and adds n-step transitions between
stacks of four frames with priorities of its own. A learner's draws batches, compares every row with a digest of what
was pushed, takes steps of double DQN, and sets priorities anew. It is about bytes, not about scores.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from examples.apex.dqn import Improver, errors_of_actor, priorities_of
from examples.apex.dueling import for_frames
from examples.apex.nstep import NStep, Transition, columns
from examples.apex.options import Options, Vector
from examples.apex.screen import SIDE, STACKED, AtariGame
from examples.apex.store import Replay, spec_of
from iswitch.replay import Field

__all__ = ["NAIVE_BYTES", "SPEC", "AtariActor", "AtariOptions", "AtariProgress", "digests", "play"]

NAIVE_BYTES = 2 * STACKED * SIDE * SIDE * np.dtype(np.float32).itemsize
"""Of a transition whose two stacks are sent whole, as float32."""
SPEC = spec_of(Field((STACKED, SIDE, SIDE), np.uint8, stacked=STACKED))


@dataclass(frozen=True, kw_only=True)
class AtariOptions:
    """transitions: that are added, `add_items` at a time. batches: that are drawn meanwhile, evenly. epsilon: chance of
    a random action."""

    game: str = "Breakout"
    seed: int = 1
    transitions: int = 3072
    add_items: int = 32
    batches: int = 24
    batch: int = 32
    horizon: int = 3
    discount: float = 0.99
    learning_rate: float = 1e-4
    exponent: float = 0.6
    beta: float = 0.4
    epsilon: float = 0.25

    def __post_init__(self) -> None:
        if self.add_items < 1 or self.transitions < 1 or self.transitions % self.add_items:
            raise ValueError(
                f"AtariOptions transitions must be a multiple of add_items, {self.add_items}, not {self.transitions!r}"
            )
        if not 1 <= self.batches <= self.transitions // self.add_items:
            raise ValueError(
                f"AtariOptions batches must be 1 to {self.transitions // self.add_items}, as often as something is added, "
                f"not {self.batches!r}"
            )

    @property
    def learning(self) -> Options:
        return Options(
            learning_rate=self.learning_rate,
            horizon=self.horizon,
            discount=self.discount,
            batch=self.batch,
            exponent=self.exponent,
        )


@dataclass(frozen=True, kw_only=True)
class AtariProgress:
    """So far. frames: of the game. scored: in all episodes. drawn: rows that were compared, `gone` of them came without
    data. loss: the last one."""

    added: int
    frames: int
    episodes: int
    scored: float
    drawn: int
    gone: int
    loss: float
    bytes_pushed: int

    @property
    def bytes_each(self) -> float:
        """Pushed for each transition."""
        return self.bytes_pushed / self.added


def digests(data: Mapping[str, npt.NDArray[Any]]) -> list[bytes]:
    """Of each row, all fields in it."""
    rows = len(data["action"])
    return [
        hashlib.blake2b(b"".join(data[name][row].tobytes() for name in SPEC), digest_size=16).digest()
        for row in range(rows)
    ]


class AtariActor:
    """Plays one game with a network that somebody else trains."""

    def __init__(self, options: AtariOptions, game: AtariGame, network: torch.nn.Module) -> None:
        self.options, self.game, self.network = options, game, network
        self._random = np.random.default_rng(options.seed)
        self._builder = NStep(options.horizon, options.discount)
        self._seen = game.reset(options.seed)
        self._complete: deque[Transition] = deque()
        self.episodes, self.scored = 0, 0.0

    @torch.no_grad()
    def _values(self, stacks: npt.NDArray[np.uint8]) -> Vector:
        return np.asarray(self.network(torch.from_numpy(stacks)).numpy())

    def play(self, count: int) -> tuple[dict[str, npt.NDArray[Any]], Vector]:
        """So many new transitions, with their priorities."""
        while len(self._complete) < count:
            at_random = self._random.random() < self.options.epsilon
            action = (
                int(self._random.integers(self.game.actions))
                if at_random
                else int(self._values(self._seen[None]).argmax())
            )
            after, scored, terminated, truncated = self.game.step(action)
            self._complete += self._builder.step(
                self._seen, action, float(np.sign(scored)), after, terminated=terminated, truncated=truncated
            )
            self.scored += scored
            self._seen = after
            if terminated or truncated:
                self.episodes += 1
                self._seen = self.game.reset()
        batch = columns([self._complete.popleft() for _ in range(count)])
        errors = errors_of_actor(batch, self._values(batch["observation"]), self._values(batch["next_observation"]))
        return batch, priorities_of(errors, self.options.exponent)


def play(
    actor_replay: Replay,
    learner_replay: Replay,
    options: AtariOptions,
    report: Callable[[AtariProgress, dict[str, npt.NDArray[Any]] | None], Any] = lambda progress, batch: None,
) -> AtariProgress:
    """Fills the table and draws from it. report: called whenever something was added, with the batch that was drawn, if
    one was. RuntimeError if what is drawn is not what was pushed."""
    game = AtariGame(options.game)
    online, target = (for_frames(STACKED, game.actions, options.seed) for _ in range(2))
    improver, actor = Improver(online, target, options.learning), AtariActor(options, game, online)
    pushed: dict[int, bytes] = {}
    drawn, gone, loss = 0, 0, 0.0
    adds = options.transitions // options.add_items
    progress: AtariProgress | None = None
    for number in range(1, adds + 1):
        data, priorities = actor.play(options.add_items)
        added = actor_replay.extend(data, priorities)
        pushed.update(zip(added.items.tolist(), digests(data)))
        draws = number * options.batches // adds > (number - 1) * options.batches // adds
        batch = (
            learner_replay.sample(options.batch, beta=options.beta, seed=options.seed << 32 | number) if draws else None
        )
        if batch:
            for item, digest, missing in zip(batch.items.tolist(), digests(batch.data), batch.overwritten):
                if not missing and digest != pushed[item]:
                    raise RuntimeError(f"item {item} was drawn with other bytes than those that were pushed")
            errors, loss = improver.improve(batch.data, batch.weights)
            learner_replay.update_priority(batch.items, priorities_of(errors, options.exponent))
            drawn, gone = drawn + len(batch.items), gone + int(batch.overwritten.sum())
        progress = AtariProgress(
            added=number * options.add_items,
            frames=game.frames,
            episodes=actor.episodes,
            scored=actor.scored,
            drawn=drawn,
            gone=gone,
            loss=loss,
            bytes_pushed=actor_replay.statistics().bytes_sent,
        )
        report(progress, dict(batch.data) if batch else None)
    assert progress
    return progress
