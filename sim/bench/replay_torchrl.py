"""`python -m sim.bench.replay_torchrl`, and part of `make bench`: the replay buffers that a TorchRL program can choose,
in one run, as ratios to TorchRL's own.

TorchRL's `TensorDictPrioritizedReplayBuffer` and cpprb are in the program's memory. `SwitchReplayBuffer`, and the
`ReplayClient` inside it, are over loopback with the software switch in a process of its own, whose replay service is
the golden model in Python: its figures say what the adapter adds to the client, and nothing about a board. The systems
take turns, so a busy period slows all of them. A system that does not load is reported with the reason.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch.config import Config, Replay
from iswitch.replay import Field, ReplayClient
from iswitch.switch.server import SwitchServer
from iswitch.switch.sockets import open_ports
from iswitch.switch.software_switch import SoftwareSwitch
from sim.bench.replay_baselines import OPERATIONS, Effort, Rates, rates
from sim.bench.replay_buffers import ALPHA, BETA, Buffer, CpprbBuffer, TorchrlBuffer

__all__ = ["ClientBuffer", "SwitchBuffer", "figures", "measured", "ratios", "served", "show", "systems", "table"]

HOST = "127.0.0.1"
CAPACITY, BATCHES = 1 << 12, (32, 256, 512)
TITLES = {"torchrl": "TorchRL", "cpprb": "cpprb", "client": "ReplayClient", "switch": "SwitchReplayBuffer"}


def _serve(control: Connection, capacity: int) -> None:
    config = Config(ports=2, replay=Replay(tables=2, capacity=capacity, sessions=4, log_bytes=1 << 16))
    sockets = open_ports(HOST, [0] * config.ports)
    switch = SoftwareSwitch(config, mac=bytes([2, 0, 0, 0, 0, 1]), ip=bytes(4), seed=time.time_ns())
    with SwitchServer(switch, sockets) as server:
        control.send([f"{HOST}:{opened.getsockname()[1]}" for opened in server.sockets])
        server.serve()


@contextmanager
def served(capacity: int) -> Iterator[list[str]]:
    """Run a software switch with two tables in a process of its own, and yield the addresses of its two ports."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there, capacity), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


class _Handles:
    """Converts the places that a `Buffer` is called with to handles, and back, for the only writer of a table."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.adds = capacity, 0

    def of(self, places: np.ndarray) -> np.ndarray:
        latest = self.capacity + self.adds - 1
        return latest - (latest - places) % self.capacity


class ClientBuffer:
    """The client alone, as a `Buffer`, on table 0."""

    def __init__(self, capacity: int, record_bytes: int, *, address: str) -> None:
        self.client = ReplayClient(address, {"record": Field((record_bytes,), np.uint8)}, table=0)
        self.handles = _Handles(capacity)

    def add(self, records: np.ndarray, priorities: np.ndarray) -> None:
        self.handles.adds += len(self.client.extend({"record": records}, priorities**ALPHA).items)

    def sample(self, count: int) -> np.ndarray:
        return self.client.sample(count, beta=BETA, normalize="table").items % self.handles.capacity

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        tuple(self.client.update_priority(self.handles.of(indices), priorities**ALPHA))

    def close(self) -> None:
        self.client.close()


class SwitchBuffer:
    """The replay buffer of TorchRL over that client, as a `Buffer`, on table 1."""

    def __init__(self, capacity: int, record_bytes: int, *, address: str) -> None:
        import torch
        from tensordict import TensorDict

        from iswitch.replay.torchrl import SwitchReplayBuffer

        self.tensors: Callable[[np.ndarray], Any] = torch.from_numpy
        self.batch: Any = TensorDict
        example = TensorDict({"record": torch.zeros(record_bytes, dtype=torch.uint8)})
        self.buffer = SwitchReplayBuffer(address, example, alpha=ALPHA, beta=BETA, table=1)
        self.handles = _Handles(capacity)

    def add(self, records: np.ndarray, priorities: np.ndarray) -> None:
        data = {"record": self.tensors(records), "td_error": self.tensors(priorities)}
        self.handles.adds += len(self.buffer.extend(self.batch(data, batch_size=[len(records)])))

    def sample(self, count: int) -> np.ndarray:
        return self.buffer.sample(count)["index"].numpy() % self.handles.capacity

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        tuple(self.buffer.update_priority(self.tensors(self.handles.of(indices)), self.tensors(priorities)))

    def close(self) -> None:
        self.buffer.close()


@contextmanager
def systems(capacity: int) -> Iterator[dict[str, Callable[[int, int], Buffer]]]:
    """Yield all systems, with a switch for those that need one."""
    with ExitStack() as stack:
        addresses = stack.enter_context(served(capacity))

        def closed(make: Callable[..., Any], address: str, capacity: int, record_bytes: int) -> Any:
            made = make(capacity, record_bytes, address=address)
            stack.callback(made.close)
            return made

        yield {
            "torchrl": TorchrlBuffer,
            "cpprb": CpprbBuffer,
            "client": partial(closed, ClientBuffer, addresses[0]),
            "switch": partial(closed, SwitchBuffer, addresses[1]),
        }


def ratios(found: Sequence[Rates]) -> dict[tuple[str, int], list[float]]:
    """Return each system's rates by system and batch, in the order of `OPERATIONS`, divided by TorchRL's; or by those
    of the first system if TorchRL is missing."""
    names = [row.system for row in found]
    base = {row.batch: row for row in found if row.system == ("torchrl" if "torchrl" in names else names[0])}
    return {
        (row.system, row.batch): [getattr(row, name) / getattr(base[row.batch], name) for name in OPERATIONS]
        for row in found
    }


def table(found: Sequence[Rates], missing: dict[str, str]) -> Table:
    """Return thousand items per second, and in brackets the ratios."""
    made = Table("system", "batch", title="thousand items/s, median turn (ratio to the first system)")
    for operation in OPERATIONS:
        made.add_column(operation, justify="right")
    for row, values in zip(found, ratios(found).values()):
        cells = [f"{getattr(row, name) / 1e3:,.1f} ({value:.3g})" for name, value in zip(OPERATIONS, values)]
        made.add_row(TITLES[row.system], str(row.batch), *cells)
    made.caption = "\n".join(f"missing {TITLES[system]}: {why}" for system, why in missing.items())
    return made


def measured(quick: bool) -> tuple[list[Rates], dict[str, str]]:
    """Measure all systems in turns for some 20 seconds, or for a look."""
    with systems(CAPACITY) as made:
        return rates(made, (CAPACITY,), BATCHES, Effort(0.01, 2) if quick else Effort(0.1, 5))


def figures(found: Sequence[Rates], missing: dict[str, str]) -> Iterator[tuple[str, float | None, str]]:
    """Yield key, value and unit of each figure. A missing figure has None, and the reason instead of a unit."""
    for (system, batch), values in ratios(found).items():
        for operation, value in zip(OPERATIONS, values):
            yield f"replay.torchrl.{system}.{batch}.{operation}", value, "items/s, over those of TorchRL's buffer"
    for system, why in missing.items():
        yield f"replay.torchrl.{system}", None, f"missing: {why}"


def show(found: Sequence[Rates], missing: dict[str, str], console: Console) -> None:
    """Print the table."""
    console.print(table(found, missing))


def main(quick: bool = False) -> None:
    """Measure for some 20 seconds; `--quick`: for a look."""
    show(*measured(quick), Console(width=110))


if __name__ == "__main__":
    typer.run(main)
