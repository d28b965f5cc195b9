"""AllReduce over an Ethernet cable by the driver's transports, in one run: the kernel's UDP socket and a packet socket.

`python -m sim.bench.transports` runs a software switch and the workers in two network namespaces, joined by a pair of
veth interfaces, which needs root. Without root it measures UDP sockets on loopback alone. Every process has a worker
for each row of the table, and calls them in turn, so what else the machine does meets all rows alike.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from multiprocessing.connection import Connection
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import iswitch.worker
from iswitch import PacketTransport, Worker
from iswitch.driver.transport import Transport
from iswitch.switch.server import SwitchServer
from iswitch.switch.sizing import config_for
from iswitch.switch.sockets import open_ports
from iswitch.switch.software_switch import SoftwareSwitch
from sim.bench.namespaces import at, connect, obstacle

__all__ = ["PATHS", "Latency", "Path", "measure"]

SPAWN = multiprocessing.get_context("spawn")
HOST, LOOPBACK = "10.99.0.2", "127.0.0.1"
KEY, WARM_UP = 0x7A, 50
SIZES = {"1 segment": 0, "40 KB": 10_000}
"""Elements of an array; 0: as many as a segment holds."""


class Path(NamedTuple):
    """A path to the switch: its transport, None for a UDP socket, and whether the usual case runs in C."""

    transport: Callable[[str], Transport] | None
    compiled: bool


PATHS = {
    "UDP socket": Path(None, True),
    "packet socket": Path(PacketTransport, True),
    "UDP socket, in Python": Path(None, False),
    "packet socket, in Python": Path(PacketTransport, False),
}


class Latency(NamedTuple):
    """Microseconds of an AllReduce: median and 99th percentile of all calls of all workers."""

    median_us: float
    p99_us: float
    calls: int


def place(namespace: str | None) -> AbstractContextManager[None]:
    """Return a context within which the thread is in a namespace, or where it is already."""
    return at(namespace) if namespace else nullcontext()


def serve(namespace: str | None, host: str, control: Connection) -> None:
    """Serve a software switch in a namespace, until the process is killed."""
    with place(namespace):
        sockets = open_ports(host, [0, 0])
        switch = SoftwareSwitch(config_for(sockets), mac=bytes(6), ip=bytes(4), seed=time.time_ns())
        with SwitchServer(switch, sockets) as server:
            control.send([f"{host}:{opened.getsockname()[1]}" for opened in sockets])
            server.serve()


@contextmanager
def joined(path: Path, address: str, **settings: Any) -> Iterator[Worker]:
    """Yield a worker that uses a path."""
    opens_exchange = iswitch.worker.open_exchange
    if not path.compiled:
        iswitch.worker.open_exchange = lambda transport: None
    try:
        transport = path.transport(address) if path.transport else None
        made = Worker(address, key=KEY, transport=transport, **settings)
    finally:
        iswitch.worker.open_exchange = opens_exchange
    with made:
        yield made


def work(
    namespace: str | None, paths: list[str], addresses: list[str], rank: int, world: int, calls: int, results: Any
) -> None:
    """Run one process with a worker for each path. Put the times of its calls, in seconds, or an error into
    `results`."""
    try:
        with place(namespace), ExitStack() as stack:
            workers = {
                name: stack.enter_context(joined(PATHS[name], addresses[rank % 2], job=job, rank=rank, world=world))
                for job, name in enumerate(paths)
            }
            found = {}
            for size, elements in SIZES.items():
                array = np.ones(elements or next(iter(workers.values())).elements, np.float32)
                times = {name: np.empty(calls) for name in workers}
                for call in range(-WARM_UP, calls):
                    for name, worker in workers.items():
                        array[:] = rank + 1
                        begun = time.perf_counter()
                        worker.allreduce(array)
                        if call >= 0:
                            times[name][call] = time.perf_counter() - begun
                        if not (array == world * (world + 1) / 2).all():
                            raise RuntimeError(f"{name}: a sum is wrong")
                found[size] = times
        results.put(found)
    except BaseException as error:
        results.put(f"rank {rank}: {error!r}")
        raise


def measure(*, world: int, calls: int, mtu: int = 1500, loopback: bool = False) -> dict[tuple[str, str], Latency]:
    """Measure all paths.

    Parameters
    ----------
    world : int
        Number of workers, each in a process of its own.
    calls : int
        Calls of each worker for each path and size.
    mtu : int
        MTU of the interfaces.
    loopback : bool
        If True, measure UDP sockets on loopback alone.

    Returns
    -------
    dict
        By name of the size and of the path.

    Raises
    ------
    RuntimeError
        If a sum is wrong, or a worker ends with another error.
    """
    with ExitStack() as stack:
        paths = [name for name, path in PATHS.items() if not (loopback and path.transport)]
        namespaces = (None, None) if loopback else [host.path for host in stack.enter_context(connect(mtu))]
        near, far = namespaces
        here, there = SPAWN.Pipe()
        results: Any = SPAWN.Queue()
        server = SPAWN.Process(target=serve, args=(far, LOOPBACK if loopback else HOST, there), daemon=True)
        server.start()
        stack.callback(server.join)
        stack.callback(server.kill)
        addresses = here.recv()
        workers = [
            SPAWN.Process(target=work, args=(near, paths, addresses, rank, world, calls, results))
            for rank in range(world)
        ]
        for worker in workers:
            worker.start()
            stack.callback(worker.join)
        found = [results.get() for _ in workers]
    if errors := [error for error in found if isinstance(error, str)]:
        raise RuntimeError("; ".join(errors))
    latencies = {}
    for size in SIZES:
        for name in paths:
            times = np.concatenate([times[size][name] for times in found]) * 1e6
            latencies[size, name] = Latency(float(np.median(times)), float(np.percentile(times, 99)), len(times))
    return latencies


def main(
    workers: Annotated[int, typer.Option(help="Number of workers.")] = 1,
    calls: Annotated[int, typer.Option(help="Calls of each worker for each row.")] = 3000,
    mtu: Annotated[int, typer.Option(help="MTU of the interfaces.")] = 1500,
) -> None:
    """Measure the latency of an AllReduce by each transport, and print a table."""
    console = Console()
    if why := obstacle():
        console.print(f"UDP sockets on loopback alone, because {why}")
    title = f"{workers} workers, " + ("loopback" if why else f"MTU {mtu}")
    table = Table("array", "path", "median us", "99th percentile us", title=title)
    for (size, name), latency in measure(world=workers, calls=calls, mtu=mtu, loopback=bool(why)).items():
        table.add_row(size, name, f"{latency.median_us:.0f}", f"{latency.p99_us:.0f}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
