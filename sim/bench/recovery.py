"""How long a training stands still when a worker is killed, and how long the worker needs to come back.

`python -m sim.bench.recovery` starts `iswitch switch` and four processes with `iswitch.torch.ElasticTraining`, kills
one with SIGKILL in the middle, starts it again at once, and prints the times. All ranks must end with the same weights.
"""

import hashlib
import multiprocessing
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from multiprocessing.connection import wait
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console

import iswitch
from iswitch.torch import ElasticTraining
from sim.bench.flood import start_switch

__all__ = ["Recovery", "measure"]

SPAWN = multiprocessing.get_context("spawn")
KEY, VICTIM, KILL_STEP, STEPS_AFTER = 0x5EC0, 1, 50, 50
COMPUTE_S, LIMIT_S = 0.01, 120.0
"""Stands for the time in which a worker computes a gradient; the longest wait for a message."""


class Recovery(NamedTuple):
    """Seconds from the kill to the next step of the others, to the first step of the worker that came back (start of
    Python and torch included), and the median step before the kill; whether all weights were equal at the end."""

    others_s: float
    returned_s: float
    step_s: float
    equal: bool


def work(address: str, rank: int, world: int, evict_s: float, restarted: bool, last: Any, messages: Any) -> None:
    """Train as one worker, and send the time of each step."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8))
    optimizer = torch.optim.Adam(model.parameters())
    worker = iswitch.init(address, rank=rank, world=world, key=KEY, elastic=True, evict_s=evict_s)
    with worker:
        training = ElasticTraining(worker, model=model, optimizer=optimizer)

        def step(number: int) -> None:
            time.sleep(COMPUTE_S)
            optimizer.zero_grad()
            model(torch.randn(16, 64)).square().mean().backward()
            worker.allreduce([parameter.grad for parameter in model.parameters()], "mean")
            optimizer.step()
            messages.send((rank, restarted, time.monotonic(), number))

        while training.step < last.value:  # the last step is decided when the worker has come back
            training.run(step, steps=training.step + 1)
        data = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
        messages.send((rank, restarted, time.monotonic(), hashlib.sha256(data).hexdigest()))


def next_message(pipes: list[Any]) -> Any:
    """Return the next message of any process, and drop the pipes of those that have ended. Raises RuntimeError after
    `LIMIT_S`."""
    while ready := wait(pipes, LIMIT_S):
        pipe: Any = ready[0]
        try:
            return pipe.recv()
        except EOFError:
            pipes.remove(pipe)
    raise RuntimeError(f"no worker has sent a message for {LIMIT_S:g} s")


def measure(*, workers: int = 4, evict_s: float = 5.0) -> Recovery:
    """Train, kill, start again. Raises RuntimeError if a process does not answer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, ports = start_switch(stack, folder)
        addresses = [f"{host}:{port}" for host, port in ports]
        last = SPAWN.Value("q", 2**40, lock=False)
        pipes: list[Any] = []  # one for each process: one that is killed would keep the lock of a common queue

        def start(rank: int, restarted: bool) -> Any:
            address = addresses[rank % len(addresses)]
            receives, sends = SPAWN.Pipe(duplex=False)
            process = SPAWN.Process(
                target=work, args=(address, rank, workers, evict_s, restarted, last, sends), daemon=True
            )
            process.start()
            sends.close()
            pipes.append(receives)
            stack.callback(process.kill)
            return process

        processes = [start(rank, False) for rank in range(workers)]
        times: list[float] = []
        others: float | None = None
        returned: float | None = None
        killed = 0.0
        digests: dict[int, str] = {}
        while len(digests) < workers:
            rank, restarted, now, what = next_message(pipes)
            if isinstance(what, str):
                digests[rank] = what
            elif not killed:
                if rank == 0:
                    times.append(now)
                if rank == VICTIM and what >= KILL_STEP:
                    killed = time.monotonic()
                    processes[VICTIM].kill()
                    start(VICTIM, True)
            elif restarted and returned is None:
                returned = now - killed
                last.value = what + STEPS_AFTER
            elif rank != VICTIM and others is None and now > killed + 10 * COMPUTE_S:  # not a step that was under way
                others = now - killed
        assert others is not None and returned is not None
        spans = sorted(after - before for before, after in pairwise(times))
        return Recovery(others, returned, spans[len(spans) // 2], len(set(digests.values())) == 1)


def main(
    workers: Annotated[int, typer.Option(min=2, max=32, help="Workers of the job.")] = 4,
    evict_s: Annotated[float, typer.Option(min=0.1, help="Silence after which the switch evicts a worker.")] = 5.0,
) -> None:
    """Kill a worker of a training, start it again, and print how long the others and the worker needed."""
    found = measure(workers=workers, evict_s=evict_s)
    console = Console(highlight=False)
    console.print(f"a step of {workers} workers           {found.step_s * 1e3:8.1f} ms")
    console.print(f"next step of the others      {found.others_s:8.2f} s after the kill (`evict_s` {evict_s:g} s)")
    console.print(f"first step of the restarted  {found.returned_s:8.2f} s after the kill, start of Python included")
    console.print(f"weights at the end           {'equal' if found.equal else 'DIFFERENT'}")
    raise typer.Exit(not found.equal)


if __name__ == "__main__":
    typer.run(main)
