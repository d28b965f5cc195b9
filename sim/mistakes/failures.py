"""Workers that die or are slow, and a switch that restarts."""

from typing import Any

import numpy as np

from sim.bench.udp_model import kill
from sim.mistakes.scenario import Mistake, Process, run_scenario

__all__ = ["MISTAKES"]


def _gradient() -> np.ndarray:
    return np.ones(1000, np.float32)


def _slow() -> str:
    """Let rank 1 compute for longer than rank 0 waits."""

    def program(rank: int) -> Any:
        def run(process: Process) -> None:
            with process.join(world=2, rank=rank) as worker:
                process.sleep(14 * rank)
                worker.allreduce(_gradient())

        return run

    return run_scenario(program(0), program(1))


def _goes_on_after_a_timeout() -> str:
    """Let rank 0 call the next collective after a time-out, without recovery."""

    def quick(process: Process) -> None:
        with process.join(world=2, rank=0) as worker:
            try:
                worker.allreduce(_gradient())
            except TimeoutError:
                worker.allreduce(_gradient())

    def slow(process: Process) -> None:
        with process.join(world=2, rank=1) as worker:
            process.sleep(14)
            worker.allreduce(_gradient())

    return run_scenario(quick, slow)


def _restarted(*, together: bool) -> str:
    """Kill rank 1 of two, or both, and start them again with the same command."""

    def program(rank: int) -> Any:
        def run(process: Process) -> None:
            worker = process.join(world=2, rank=rank)
            worker.allreduce(_gradient())
            if rank or together:
                kill(worker)
                process.sleep(2)
                worker = process.join(world=2, rank=rank)
            with worker:
                process.sleep(30)

        return run

    return run_scenario(program(0), program(1))


def _killed() -> str:
    """Kill rank 1 of two."""

    def stays(process: Process) -> None:
        with process.join(world=2, rank=0) as worker:
            worker.allreduce(_gradient())
            worker.allreduce(_gradient())

    def dies(process: Process) -> None:
        worker = process.join(world=2, rank=1)
        worker.allreduce(_gradient())
        kill(worker)

    return run_scenario(stays, dies)


def _switch_restarted() -> str:
    def program(rank: int) -> Any:
        def run(process: Process) -> None:
            with process.join(world=2, rank=rank) as worker:
                worker.allreduce(_gradient())
                process.sleep(1)
                if rank:
                    process.board.reset()
                worker.allreduce(_gradient())

        return run

    return run_scenario(program(0), program(1))


MISTAKES = [
    Mistake(
        "One worker computed for 14 s, with `timeout_s=10`",
        _slow,
        "Set `timeout_s` above the longest time that one worker computes, with a margin.",
    ),
    Mistake(
        "Caught `CollectiveTimeoutError`, and called the next collective",
        _goes_on_after_a_timeout,
        "Call `rejoin`, then `sync_state`, on all workers.",
    ),
    Mistake(
        "Killed one worker (`kill -9`) while the others went on",
        _killed,
        "Go on: the sums contain the other workers, and `Reduction.absent` names the missing ranks. Start the killed "
        "worker again with "
        "`elastic=True`.",
    ),
    Mistake(
        "Killed one worker, and started it again without `elastic=True`",
        lambda: _restarted(together=False),
        "Start it with `elastic=True`, and call `sync_state` first. The others must call it when `needs_sync` is True.",
    ),
    Mistake(
        "Killed all workers (`kill -9`), and started them again",
        lambda: _restarted(together=True),
        "Do nothing: the new workers end the old job after `evict_s`. With the job's key, `iswitch end-job --job 0 "
        "--key KEY` ends it at once.",
    ),
    Mistake(
        "The switch was restarted in the middle of a job",
        _switch_restarted,
        "Catch `NotAMemberError`, call `rejoin`, then `sync_state`; or make new workers.",
    ),
]
