"""Sums that run while the backward pass goes on: DistributedDataParallel with `iswitch.torch.hook`, bucket by bucket.

`python -m sim.bench.ddp_overlap` starts `iswitch switch` and two processes. It prints when each bucket of one step is
handed to the switch and when its mean is there, and the median time of a step: the backward pass alone, the backward
pass with the sums after it, and both at once with the hook.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import torch.distributed as dist
import typer
from rich.console import Console
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import iswitch
import iswitch.torch
from sim.bench.flood import start_switch

__all__ = ["Bucket", "Overlap", "measure"]

SPAWN = multiprocessing.get_context("spawn")
KEY, WIDTH, LAYERS, BATCH, BUCKET_MB, WARM_UP = 0x0E7, 512, 8, 256, 1.1, 5
LIMIT_S = 300.0


class Bucket(NamedTuple):
    """Seconds from the begin of the backward pass until a bucket is handed over, and until its mean is there."""

    handed_over_s: float
    done_s: float


class Overlap(NamedTuple):
    """Median seconds of a step in three forms, and the buckets of the last step with the hook."""

    backward_s: float
    sums_after_s: float
    hook_s: float
    buckets: list[Bucket]


class Timeline:
    """The hook, with the times of each bucket."""

    def __init__(self, worker: iswitch.Worker) -> None:
        self.worker, self.begun, self.buckets = worker, 0.0, [Bucket(0, 0)]

    def begin(self) -> None:
        """Note the begin of a backward pass."""
        self.begun, self.buckets = time.perf_counter(), []

    @staticmethod
    def hook(timeline: "Timeline", bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Hand a bucket over, as `iswitch.torch.hook` does."""
        index, handed_over = len(timeline.buckets), time.perf_counter() - timeline.begun
        timeline.buckets.append(Bucket(handed_over, 0.0))

        def done(mean: torch.futures.Future[Tensor]) -> Tensor:
            timeline.buckets[index] = Bucket(handed_over, time.perf_counter() - timeline.begun)
            return mean.value()

        return iswitch.torch.hook(timeline.worker, bucket).then(done)


def work(address: str, rank: int, world: int, steps: int, store: str, results: Any) -> None:
    """Time the three forms of a step as one rank."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=timedelta(seconds=LIMIT_S)
    )
    torch.manual_seed(1)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=BUCKET_MB)
    data = torch.randn(BATCH, WIDTH)
    spans: dict[str, list[float]] = {"backward": [], "after": [], "hook": []}
    with iswitch.init(address, rank=rank, world=world, key=KEY) as worker:
        timeline = Timeline(worker)
        model.register_comm_hook(timeline, Timeline.hook)
        for _ in range(WARM_UP + steps):
            for form, found in spans.items():
                model.zero_grad(set_to_none=True)
                loss = model(data).square().mean()
                worker.barrier()
                timeline.begin()
                if form == "hook":
                    loss.backward()
                else:
                    with model.no_sync():
                        loss = model(data).square().mean()
                        worker.barrier()
                        timeline.begin()
                        loss.backward()
                    if form == "after":
                        worker.allreduce([parameter.grad for parameter in model.parameters()], "mean")
                found.append(time.perf_counter() - timeline.begun)
                if form == "hook":
                    buckets = timeline.buckets
        if rank == 0:
            backward_s, sums_after_s, hook_s = (statistics.median(found[WARM_UP:]) for found in spans.values())
            results.put(Overlap(backward_s, sums_after_s, hook_s, buckets))
        worker.barrier()
    dist.destroy_process_group()


def measure(*, workers: int = 2, steps: int = 30) -> Overlap:
    """Run the switch and the workers. Raises queue.Empty if they do not end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, ports = start_switch(stack, folder)
        results = SPAWN.Queue()
        for rank in range(workers):
            host, port = ports[rank % len(ports)]
            arguments = (f"{host}:{port}", rank, workers, steps, str(folder / "store"), results)
            process = SPAWN.Process(target=work, args=arguments, daemon=True)
            process.start()
            stack.callback(process.join, 10)
        found: Overlap = results.get(timeout=LIMIT_S)
        return found


def main(
    workers: Annotated[int, typer.Option(min=2, max=32, help="Processes.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each form, in turn.")] = 30,
) -> None:
    """Show that sums run while the backward pass goes on."""
    found = measure(workers=workers, steps=steps)
    console = Console(highlight=False)
    for index, bucket in enumerate(found.buckets):
        console.print(
            f"bucket {index}: handed over {bucket.handed_over_s * 1e3:7.1f} ms after the begin of the backward pass, "
            f"mean there {bucket.done_s * 1e3:7.1f} ms"
        )
    console.print(f"backward pass alone          {found.backward_s * 1e3:8.1f} ms")
    console.print(f"backward pass, then the sums {found.sums_after_s * 1e3:8.1f} ms")
    console.print(f"both at once, with the hook  {found.hook_s * 1e3:8.1f} ms")
    hidden = 1 - (found.hook_s - found.backward_s) / (found.sums_after_s - found.backward_s)
    console.print(f"part of the sums' time that the backward pass hides {hidden:6.0%}")


if __name__ == "__main__":
    typer.run(main)
