"""Speed of the emulated board beside other builds of it, in one run.

`python -m sim.bench.emulator_speed` compiles the board of this checkout and prints where its library is. Given such
libraries of other checkouts, it runs all of them in turn under the load of `sim.bench.throughput`, and prints how many
times as fast this checkout's is, by processor time. All builds must do the same in every cycle.
"""

import argparse
import hashlib
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from iswitch.config import Config
from iswitch.wire import Format
from sim.bench.throughput import joined
from sim.emulator.compile import library
from sim.emulator.engine import Board

__all__ = ["compare"]

FRAMES = 100
"""Contributions of each member in one repetition: some 20,000 cycles, so that a disturbance spoils only one of many."""
MANY_CYCLES = 1 << 40
"""The board stops by itself when all frames have left."""


def measure(board: Board, repetition: int) -> tuple[float, str]:
    """Return the speed in kHz by processor time, and a digest of all frames that left and of their cycles."""
    clients = joined(board, format=Format.WINDOW64)
    begun_cycle = board.cycles
    payloads = np.random.default_rng(repetition).normal(size=(len(clients), board.config.elements)).astype("<f4")
    for k in range(FRAMES):
        for client, payload in zip(clients, payloads, strict=True):
            behind = min(k, board.config.window - 1)
            board.send(client.port, client.contribution(client.first_seq + k, payload, behind=behind))
    busy = time.process_time()
    ran = board.run(MANY_CYCLES)
    seconds = time.process_time() - busy
    seen = hashlib.sha256()
    for port in range(board.config.ports):
        for frame in board.receive(port):
            seen.update(f"{port} {frame.first - begun_cycle} {frame.last - begun_cycle} {frame.data.hex()}".encode())
    board.send(0, clients[0].end_job())
    board.run(20_000)
    for port in range(board.config.ports):
        board.receive(port)
    return ran / seconds / 1e3, seen.hexdigest()


def compare(paths: Sequence[Path], repetitions: int) -> list[list[float]]:
    """Return the speeds of each library, in kHz, one a repetition.

    Raises
    ------
    RuntimeError
        If two libraries differ in a frame, or in the cycle in which a word of it leaves.
    """
    speeds: list[list[float]] = [[] for _ in paths]
    with ExitStack() as stack:
        boards = [stack.enter_context(Board(path=path)) for path in paths]
        for repetition in range(repetitions):
            runs = [measure(board, repetition) for board in boards]
            if len({seen for _, seen in runs}) > 1:
                raise RuntimeError(
                    f"in repetition {repetition} the libraries do not send the same frames in the same cycles"
                )
            for found, (khz, _) in zip(speeds, runs, strict=True):
                found.append(khz)
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sim.bench.emulator_speed", description=__doc__)
    parser.add_argument("libraries", nargs="*", type=Path, help="libraries of other checkouts, of the same switch")
    parser.add_argument("--half-width", action="store_true", help="also this checkout's board with half-width formats")
    parser.add_argument("--repetitions", type=int, default=40)
    asked = parser.parse_args()
    paths = [library(Config()), *asked.libraries]
    if asked.half_width:
        paths.append(library(replace(Config(), half_width=True)))
    speeds = compare(paths, asked.repetitions)
    for path, found in zip(paths, speeds, strict=True):
        median, best = statistics.median(found), statistics.quantiles(found, n=10)[-1]
        ratios = [ours / other for ours, other in zip(speeds[0], found, strict=True)]
        print(f"{path}: median {median:.0f} kHz of processor time, from {min(found):.0f} to {max(found):.0f}")
        if path != paths[0]:
            low, middle, high = statistics.quantiles(ratios)
            print(
                f"    this checkout is {middle:.2f} times as fast (half of the pairs {low:.2f} to {high:.2f}), "
                f"{statistics.quantiles(speeds[0], n=10)[-1] / best:.2f} times in the least disturbed tenth"
            )


if __name__ == "__main__":
    main()
