"""The worker in C, and the facts of docs/client.md for authors of clients."""

import os
import re
import subprocess
import sys
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from iswitch import Worker
from iswitch.config import Config
from iswitch.golden.switch import Switch
from iswitch.wire import RESULT_HEADER, TAIL_BYTES
from sim.bench.oracle import exact, nearest
from sim.bench.udp_model import Faults, UdpModel
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples/c/allreduce.c"
PAGE = (ROOT / "docs/client.md").read_text(encoding="utf-8")
KEY, WORLD = 7, 3
BAD = Faults(loss=0.05, duplication=0.05, reordering=0.05)


def compile_client(source, program):
    command = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE.parent}", "-o", program, source]
    subprocess.run([*command, "-lm"], check=True)
    return program


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return compile_client(SOURCE, tmp_path_factory.mktemp("c") / "allreduce")


def start(client, address, rank, count, steps, world=WORLD):
    environment = os.environ | {
        "ISWITCH_ADDRESS": address,
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "ISWITCH_KEY": str(KEY),
    }
    return subprocess.Popen(
        [client, str(count), str(steps)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def vector(rank, step, count):
    """The numbers that the program in C sums. Sums of three of them are exact in float32."""
    return ((rank + 1) * 0.25 * ((np.arange(count) + step) % 1000)).astype(np.float32)


def sums(client, count, steps, faults):
    """Let two workers in C and one in Python sum. Return what the C ones printed, and the checksums of exact sums."""
    with UdpModel(faults=faults) as model:
        others = [start(client, model.address(rank), rank, count, steps) for rank in range(1, WORLD)]
        with Worker(model.address(0), world=WORLD, rank=0, key=KEY) as worker:
            for step in range(steps):
                worker.allreduce(vector(0, step, count))
            printed = [other.communicate(timeout=60) for other in others]
    assert [other.returncode for other in others] == [0, 0], printed
    exact_sums = [sum(vector(rank, step, count).astype(float) for rank in range(WORLD)) for step in range(steps)]
    checks = [f"{zlib.crc32(values.astype('<f4').tobytes()):08x}" for values in exact_sums]
    return [[line.split()[-1] for line in out.splitlines()] for out, _ in printed], checks


@pytest.mark.parametrize("faults", [Faults(), BAD], ids=["sound", "bad network"])
@pytest.mark.parametrize("count", [0, 1, 351, 352, 353, 20_000])
def test_workers_in_c_and_in_python_have_the_exact_sums(client, count, faults):
    printed, checks = sums(client, count, 3, faults)
    assert printed == [checks, checks]


def end_of(worker, seconds):
    """Return the checksums that a program printed. One that does not end is killed."""
    try:
        out, _ = worker.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        worker.kill()
        out, _ = worker.communicate()
    return [line.split()[-1] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("total = total ? total : 0xFFFF;", "total ^= 1;"),  # the digest
        ("s.segment[w->low - s.first].done", "s.segment[w->low - s.first].sent_s"),  # what was sent counts as summed
        ("= w->position |", "= 0 |"),  # the position
    ],
)
def test_a_client_with_a_mistake_is_noticed(client, tmp_path, right, wrong):
    text = SOURCE.read_text(encoding="utf-8")
    assert text.count(right) == 1
    source = tmp_path / "mutant.c"
    source.write_text(text.replace(right, wrong), encoding="utf-8")
    mutant = compile_client(source, tmp_path / "mutant")
    with UdpModel(faults=Faults(reordering=0.2)) as model:
        workers = [start((client, mutant)[rank], model.address(rank), rank, 20_000, 3, world=2) for rank in range(2)]
        sound, mistaken = (end_of(worker, seconds=3) for worker in workers)
    assert len(sound) < 3 or sound != mistaken


def test_a_worker_alone_is_told_what_is_wrong(client):
    program = start(client, "127.0.0.1", 0, 10, 1)
    assert "ISWITCH_ADDRESS must be HOST:PORT, not 127.0.0.1" in program.communicate(timeout=60)[1]
    assert program.returncode == 1


def test_a_sum_with_nan_ends_the_program_and_names_the_rank(client):
    with UdpModel() as model:
        other = start(client, model.address(1), 1, 4, 1, world=2)
        with Worker(model.address(0), world=2, rank=0, key=KEY, on_taint="ignore") as worker:
            worker.allreduce(np.full(4, np.nan, np.float32))
            error = other.communicate(timeout=60)[1]
    assert "ranks 0x1 sent NaN" in error
    assert other.returncode == 1


# docs/client.md


def test_the_header_is_what_the_command_writes():
    command = [sys.executable, "-m", "iswitch.wire.c_header"]
    written = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (SOURCE.parent / "iswitch_wire.h").read_text(encoding="utf-8") == written


@pytest.mark.parametrize("name", ["join", "ack", "contribution", "result"])
def test_the_page_shows_the_bytes_of_the_example_frames(name):
    lines = (ROOT / f"tests/vectors/{name}.hex").read_text(encoding="utf-8").splitlines()
    [last] = [k for k, line in enumerate(lines) if "udp_checksum" in line]
    assert "```text\n" + "\n".join(lines[last + 1 :]) + "\n```" in PAGE


NUMBERS = re.findall(r"^\| (-?\d+) \| ([0-9a-f ]+) \| (rejected|[-\d ]+) \| (-?\d+) \| ([0-9a-f]{8}) \|", PAGE, re.M)


def switch_result(fraction, patterns):
    """Return the element of the golden switch's result, from a job with a member for each contribution."""
    config = Config(ports=4, bus_bits=64, members=4, jobs=2, window=4, elements=4)
    switch = Switch(config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    clients = [Client.numbered(k) for k in range(len(patterns))]
    for _ in range(3):
        for client in clients:
            frame = client.join(world=len(clients), elements=4, fraction=fraction)
            for port, answer in switch.receive(client.port, frame, 0):
                if port == client.port:
                    client.take(answer)
    for client, pattern in zip(clients, patterns, strict=True):
        number = np.array([pattern], "<u4").view("<f4")
        sent = switch.receive(client.port, client.contribution(client.first_seq, number), 0)
    payload = sent[0][1][42 + RESULT_HEADER.itemsize : -TAIL_BYTES]
    return int.from_bytes(payload[:4], "little")


@pytest.mark.parametrize(("fraction", "contributions", "integers", "total", "result"), NUMBERS)
def test_the_numbers_of_the_page_are_exact_and_the_switchs(fraction, contributions, integers, total, result):
    scale = Fraction(2) ** int(fraction)
    patterns = [int(word, 16) for word in contributions.split()]
    if integers == "rejected":
        [pattern] = patterns
        assert pattern == 0x7F800000 or abs(exact(pattern)) >= Fraction(2) ** (58 - int(fraction))
    else:
        assert [int(word) for word in integers.split()] == [round(exact(pattern) * scale) for pattern in patterns]
        assert int(total) == sum(int(word) for word in integers.split())
    assert int(result, 16) == nearest(Fraction(int(total)) / scale) == switch_result(int(fraction), patterns)


def test_the_table_of_numbers_is_there():
    assert len(NUMBERS) == 19
