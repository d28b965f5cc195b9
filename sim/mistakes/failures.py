"""Workers that die or are slow, and a switch that is restarted."""

from typing import Any

import numpy as np

from sim.bench.udp_model import kill
from sim.mistakes.stage import Mistake, Player, play

__all__ = ["MISTAKES"]


def _gradient() -> np.ndarray:
    return np.ones(1000, np.float32)


def _slow() -> str:
    """Rank 1 computes for longer than rank 0 waits."""

    def part(rank: int) -> Any:
        def run(player: Player) -> None:
            with player.join(world=2, rank=rank) as worker:
                player.sleep(14 * rank)
                worker.allreduce(_gradient())

        return run

    return play(part(0), part(1))


def _goes_on_after_a_timeout() -> str:
    """Rank 0 calls the next collective as if nothing had happened."""

    def quick(player: Player) -> None:
        with player.join(world=2, rank=0) as worker:
            try:
                worker.allreduce(_gradient())
            except TimeoutError:
                worker.allreduce(_gradient())

    def slow(player: Player) -> None:
        with player.join(world=2, rank=1) as worker:
            player.sleep(14)
            worker.allreduce(_gradient())

    return play(quick, slow)


def _restarted(*, together: bool) -> str:
    """Rank 1 of two is killed, or both are, and started again with the same command."""

    def part(rank: int) -> Any:
        def run(player: Player) -> None:
            worker = player.join(world=2, rank=rank)
            worker.allreduce(_gradient())
            if rank or together:
                kill(worker)
                player.sleep(2)
                worker = player.join(world=2, rank=rank)
            with worker:
                player.sleep(30)

        return run

    return play(part(0), part(1))


def _killed() -> str:
    """Rank 1 of two is killed, and does not come back."""

    def stays(player: Player) -> None:
        with player.join(world=2, rank=0) as worker:
            worker.allreduce(_gradient())
            worker.allreduce(_gradient())

    def dies(player: Player) -> None:
        worker = player.join(world=2, rank=1)
        worker.allreduce(_gradient())
        kill(worker)

    return play(stays, dies)


def _switch_restarted() -> str:
    def part(rank: int) -> Any:
        def run(player: Player) -> None:
            with player.join(world=2, rank=rank) as worker:
                worker.allreduce(_gradient())
                player.sleep(1)
                if rank:
                    player.board.reset()
                worker.allreduce(_gradient())

        return run

    return play(part(0), part(1))


MISTAKES = [
    Mistake(
        "One worker computed for 14 s, with `timeout_s=10`",
        _slow,
        "Set `timeout_s` above the longest time that one worker computes, with reserve.",
    ),
    Mistake(
        "Caught `CollectiveTimeoutError`, and called the next collective",
        _goes_on_after_a_timeout,
        "Do what the message says, on all workers: collectives are possible again after `rejoin` and `sync_state`.",
    ),
    Mistake(
        "Killed one worker (`kill -9`) while the others went on",
        _killed,
        "The sum is of the workers that are left, and `.missing` names the others. Start the worker again with `elastic=True`.",
    ),
    Mistake(
        "Killed one worker, and started it again without `elastic=True`",
        lambda: _restarted(together=False),
        "Start it with `elastic=True`, and call `sync_state` first.",
    ),
    Mistake(
        "Killed all workers (`kill -9`), and started them again",
        lambda: _restarted(together=True),
        "Nothing, if the workers of the old job are silent for longer than `evict_s`. `iswitch end-job --job 0` ends the old job at once.",
    ),
    Mistake(
        "The switch was restarted in the middle of a job",
        _switch_restarted,
        "Catch `NotAMemberError`, call `rejoin`, then `sync_state`; or make new workers.",
    ),
]
