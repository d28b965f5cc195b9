"""Processes that send random bytes at full speed to a software switch, beside a job whose every sum is checked.

`python -m sim.bench.flood --seconds 120 --senders 10 --workers 4` starts `iswitch switch`, prints what happened, and
fails if a sum is wrong or the switch's memory grows.

Senders and workers share the switch's sockets, and the kernel drops what these have no room for. So the workers lose
frames, and the job has no time limits. All processes share this machine's cores, where in a cluster the senders would
have cores of their own: `--nice 10` leaves the switch most of the time that it needs, `--nice 0` does not.
"""

import itertools
import json
import multiprocessing
import os
import queue
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch import Worker
from iswitch.wire import VERSION
from sim.bench.until import until

__all__ = ["Flood", "flood", "random_datagram", "send_random", "show", "start_switch"]

SPAWN = multiprocessing.get_context("spawn")
SIZES = (1, 21, 22, 26, 86, 1434)
"""Bytes of a datagram: nothing, parts of a header, a header, a control message, a full segment."""
POOL, ROUNDS = 2048, 8
"""Datagrams that are made at a time, and how often each is sent."""
VECTOR = 5000
KEY = 0xF100D
STEP_S, LOOK_S, WARM_S, END_S = 60.0, 1.0, 5.0, 10.0
PATIENT: dict[str, Any] = {"evict_s": 0.0, "switch_timeout_s": 600.0, "timeout_s": 600.0}
"""Settings of the job."""
GROWTH_KB = 1024
"""Growth of the resident memory that counts as none: pages that were touched for the first time."""


class Flood(NamedTuple):
    """What happened.

    `sent`: random datagrams; `sums`: sums of the job within the flood; `wrong`: how many workers' sums were not exact,
    those before and after the flood included; `longest_s`: the longest time of a sum; `resident_kb`: the switch's
    resident memory once a second, from `WARM_S` after the begin of the flood on; `counters`: the switch's, at the end.
    """

    seconds: float
    sent: int
    sums: int
    wrong: int
    longest_s: float
    resident_kb: list[int]
    counters: dict[str, int]

    @property
    def growth_kb(self) -> int:
        """How much the memory has grown since `WARM_S` after the begin."""
        return max(self.resident_kb) - self.resident_kb[0]


def random_datagram(chance: random.Random) -> bytes:
    """Return random bytes, of which every other datagram begins as one of the protocol does."""
    data = bytearray(chance.randbytes(chance.choice(SIZES)))
    if chance.random() < 0.5:
        data[0] = VERSION << 4 | chance.randrange(16)
    return bytes(data)


def send_random(
    address: tuple[str, int], started: Event, stop: Event, seed: int, counts: Any = None, nice: int = 0
) -> None:
    """Send random datagrams as fast as possible, until `stop`. Put their number into `counts`."""
    os.nice(nice)
    chance, sent = random.Random(seed), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        while not stop.is_set():
            pool = [random_datagram(chance) for _ in range(POOL)]
            for data in itertools.chain.from_iterable(itertools.repeat(pool, ROUNDS)):
                with suppress(OSError):
                    sender.send(data)
                    sent += 1
                    if sent % 256 == 0 and stop.is_set():
                        break
            started.set()
    if counts is not None:
        counts.put(sent)


def work(address: str, rank: int, world: int, ready: Event, stop: Event, sums: Any, results: Any) -> None:
    """Sum until `stop`, which the workers learn in one of the sums. Count the sums in `sums[rank]`. Put the number of
    wrong ones, the longest time and an error into `results`."""
    try:
        vectors = np.random.default_rng(1).integers(-1000, 1000, (world, VECTOR)).astype(np.float32)
        vectors[:, 0] = 0
        wanted, array = vectors.sum(axis=0), np.empty(VECTOR, np.float32)
        wrong, longest_s = 0, 0.0
        with Worker(address, world=world, rank=rank, key=KEY, **PATIENT) as worker:
            ready.set()
            while True:
                np.copyto(array, vectors[rank])
                array[0] = stop.is_set()
                begun = time.perf_counter()
                worker.allreduce(array)
                longest_s = max(longest_s, time.perf_counter() - begun)
                sums[rank] += 1
                wrong += not np.array_equal(array[1:], wanted[1:])
                if array[0]:
                    break
        results.put((wrong, longest_s, ""))
    except BaseException as error:
        results.put((0, 0.0, f"rank {rank}: {error!r}"))
        raise


def resident_kb(pid: int) -> int:
    """Return the resident memory of a process."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])


def start_switch(
    stack: ExitStack, folder: Path, *options: str
) -> tuple[subprocess.Popen[bytes], list[tuple[str, int]]]:
    """Start `iswitch switch` with options of the command. Return the process and the addresses of its ports."""
    ready = folder / "ready.json"
    command = [sys.executable, "-c", "from iswitch.tools.cli import main; main()", "switch", "--udp-base", "0"]
    process = subprocess.Popen(
        [*command, "--ready-file", str(ready), "--summary", str(folder / "summary.json"), *options]
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    until(ready.exists, STEP_S, unless=process.poll)
    return process, [(host, port) for host, port in json.loads(ready.read_text())["ports"]]


def flood(*, seconds: float, senders: int, workers: int, nice: int = 0) -> Flood:
    """Run the switch, the job and the flood for so many seconds.

    Raises
    ------
    RuntimeError
        If a worker ends with an error.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        switch, addresses = start_switch(stack, folder)
        stop, end, results, counts = SPAWN.Event(), SPAWN.Event(), SPAWN.Queue(), SPAWN.Queue()
        sums = SPAWN.Array("q", workers)
        joined, started = [SPAWN.Event() for _ in range(workers)], [SPAWN.Event() for _ in range(senders)]
        names = ["{}:{}".format(*addresses[rank % len(addresses)]) for rank in range(workers)]
        for rank in range(workers):
            arguments = (names[rank], rank, workers, joined[rank], end, sums, results)
            stack.callback(start(SPAWN.Process(target=work, args=arguments)).kill)
        if not all(event.wait(STEP_S) for event in joined):
            raise RuntimeError(f"the workers have not joined: {results.get()[-1]}")
        for k in range(senders):
            arguments = (addresses[k % len(addresses)], started[k], stop, k, counts, nice)
            stack.callback(start(SPAWN.Process(target=send_random, args=arguments)).kill)
        if not all(event.wait(STEP_S) for event in started):
            raise RuntimeError("the senders do not send")
        memory, begun, sums_before = list[int](), time.monotonic(), sums[0]
        while time.monotonic() - begun < seconds:
            time.sleep(LOOK_S)
            if time.monotonic() - begun > min(WARM_S, seconds / 2):
                memory.append(resident_kb(switch.pid))
        took_s, sums_within = time.monotonic() - begun, sums[0] - sums_before
        end.set()  # the job ends within the flood, if it can
        found = list[tuple[int, float, str]]()
        with suppress(queue.Empty):
            found = [results.get(timeout=END_S)]
        stop.set()
        sent = sum(counts.get() for _ in range(senders))
        found = [*found, *(results.get(timeout=STEP_S) for _ in range(workers - len(found)))]
        if errors := [error for *_, error in found if error]:
            raise RuntimeError("; ".join(errors))
        switch.terminate()
        switch.wait(STEP_S)
        counters = json.loads((folder / "summary.json").read_text())["counters"]
    wrong, longest_s, _ = zip(*found, strict=True)
    return Flood(took_s, sent, sums_within, sum(wrong), max(longest_s), memory, counters)


def start(process: Any) -> Any:
    process.start()
    return process


def show(found: Flood, console: Console) -> None:
    """Print what happened."""
    outcomes = Counter(
        {name.partition(".")[2]: count for name, count in found.counters.items() if name.startswith("outcome.")}
    )
    table = Table("", "")
    rows: dict[str, object] = {
        "seconds": f"{found.seconds:.0f}",
        "random datagrams sent": f"{found.sent:,}",
        "sums meanwhile": f"{found.sums:,}",
        "wrong sums, all workers together": found.wrong,
        "longest sum, s": f"{found.longest_s:.2f}",
        "resident memory of the switch, first and last, KB": f"{found.resident_kb[0]:,}, {found.resident_kb[-1]:,}",
        "its growth, KB": found.growth_kb,
        "frames that the switch received": f"{outcomes.total():,}",
        **{f"of these {name}": f"{count:,}" for name, count in outcomes.most_common(8)},
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    console.print(table)


def main(
    seconds: Annotated[float, typer.Option(help="Seconds of the flood.")] = 120,
    senders: Annotated[int, typer.Option(help="Processes that send random bytes.")] = 10,
    workers: Annotated[int, typer.Option(help="Workers of the job.")] = 4,
    nice: Annotated[int, typer.Option(help="Niceness of the senders, 0 to 19.")] = 10,
) -> None:
    """Flood a software switch beside a job, and print the switch's memory and the job's sums."""
    found = flood(seconds=seconds, senders=senders, workers=workers, nice=nice)
    show(found, Console())
    if found.wrong or found.growth_kb > GROWTH_KB:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
