"""Workers at a software switch, over real sockets."""

import multiprocessing
import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from iswitch import RecoverableError, Worker
from iswitch.config import Config
from iswitch.switch.parents import parse_parent
from iswitch.switch.server import SwitchServer
from iswitch.switch.sockets import open_ports
from iswitch.switch.software_switch import SoftwareSwitch
from iswitch.wire import Outcome, PortCounter
from sim.bench.flood import send_random

MAC, IP = bytes(6), bytes(4)
SPAWN = multiprocessing.get_context("spawn")


def new_server(config=None, udp_ports=None):
    config = config or Config()
    switch = SoftwareSwitch(config, mac=MAC, ip=IP, seed=random.SystemRandom().getrandbits(64))
    return SwitchServer(switch, open_ports("127.0.0.1", udp_ports or [0] * config.ports))


@contextmanager
def serving(config=None):
    """Yield a server that serves in a thread, and the addresses of its ports."""
    with new_server(config) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server, ["{}:{}".format(*opened.getsockname()) for opened in server.sockets]
        finally:
            server.stop()
            thread.join()


@contextmanager
def serving_tree():
    """Yield the addresses of the ports of two leaves; rank r joins below leaf r % 2."""
    with serving() as (_, root), serving() as (one, first), serving() as (two, second):
        for leaf, ranks in ((one, "0,2"), (two, "1,3")):
            job, parent = parse_parent(f"0={root[0]}/{ranks}", port=leaf.switch.config.ports - 1)
            leaf.switch.set_parent(job, parent)
        yield [first[0], second[0], first[1], second[1]]


def summed(worker, vectors):
    array = vectors[worker.rank].copy()
    worker.allreduce(array, op="sum")
    return array


def together(addresses, world, body, **options):
    def run(rank):
        with Worker(addresses[rank % len(addresses)], world=world, rank=rank, **options) as worker:
            return body(worker)

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(run, range(world)))


@pytest.mark.parametrize("ports", [1, 4])
@pytest.mark.parametrize("size", [1, 352, 353, 64 * 352 + 1, 100_000])
def test_a_sum_is_exact_for_every_number_of_segments(ports, size):
    vectors = np.random.default_rng(size).integers(-1000, 1000, (4, size)).astype(np.float32)
    with serving(Config(ports=ports)) as (_, addresses):
        for result in together(addresses, 4, lambda worker: summed(worker, vectors)):
            np.testing.assert_array_equal(result, vectors.sum(axis=0))


@pytest.mark.parametrize("size", [1, 1000])
def test_two_leaves_and_a_root_sum_exactly(size):
    vectors = np.random.default_rng(size).normal(size=(4, size)).astype(np.float32)
    with serving() as (_, flat):
        (wanted, *_) = together(flat, 4, lambda worker: summed(worker, vectors), elements=180)
    with serving_tree() as leaves:
        for result in together(leaves, 4, lambda worker: summed(worker, vectors)):
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("format", ["fp32", "int32"])
def test_other_formats_are_summed(format):
    dtype = np.int32 if format == "int32" else np.float32
    vectors = np.random.default_rng(1).integers(-1000, 1000, (3, 1000)).astype(dtype)
    with serving() as (_, addresses):
        for result in together(addresses, 3, lambda worker: summed(worker, vectors), format=format):
            np.testing.assert_array_equal(result, vectors.sum(axis=0))


def test_sums_are_right_beside_random_bytes_and_every_datagram_is_counted_once():
    vectors = np.random.default_rng(3).integers(-1000, 1000, (2, 5000)).astype(np.float32)
    with serving() as (server, addresses):
        stop, started = SPAWN.Event(), [SPAWN.Event() for _ in range(2)]
        hosts = [tuple(address.rsplit(":", 1)) for address in (addresses[0], addresses[2])]
        floods = [
            SPAWN.Process(target=send_random, args=((host, int(port)), started[k], stop, k))
            for k, (host, port) in enumerate(hosts)
        ]
        for each in floods:
            each.start()
        assert all(event.wait(60) for event in started)
        try:
            for _ in range(20):
                for result in together(addresses, 2, lambda worker: summed(worker, vectors)):
                    np.testing.assert_array_equal(result, vectors.sum(axis=0))
        finally:
            stop.set()
            for each in floods:
                each.join()
    received, outcomes = (np.asarray(counts) for counts in (server.switch.port_counters, server.switch.outcomes))
    assert received[:, PortCounter.RX_FRAMES].sum() == outcomes.sum()
    assert all(outcomes[kind] for kind in (Outcome.VERSION, Outcome.TYPE, Outcome.LENGTH, Outcome.JOB))


def serve_until_killed(udp_ports, ready):
    with new_server(Config(ports=len(udp_ports)), udp_ports) as server:
        ready.set()
        server.serve()


class RestartedSwitch:
    """A switch in a process of its own, which can be killed and started again at the same ports."""

    def __init__(self, ports):
        with new_server(Config(ports=ports)) as free:
            self.udp_ports = [opened.getsockname()[1] for opened in free.sockets]
        self.addresses = [f"127.0.0.1:{port}" for port in self.udp_ports]

    def __enter__(self):
        ready = SPAWN.Event()
        self.process = SPAWN.Process(target=serve_until_killed, args=(self.udp_ports, ready))
        self.process.start()
        assert ready.wait(30)
        return self

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    def __exit__(self, *_):
        self.kill()


def test_workers_go_on_after_the_switch_was_killed_and_started_again():
    """They learn it by one error, agree on a state, and their sums stay exact."""
    switch, errors = RestartedSwitch(2), []
    steps, killed = 60, threading.Event()

    def body(worker):
        state, step = np.zeros(3000, np.float32), 0
        step = worker.sync_state(state, step)
        while step < steps:
            if step == 20 and worker.rank == 0 and not killed.is_set():
                switch.kill()
                switch.__enter__()
                killed.set()
            try:
                if worker.needs_sync:
                    step = worker.sync_state(state, step)
                    continue
                gradient = np.full(3000, worker.rank + 1, np.float32)
                worker.allreduce(gradient, op="sum")
            except RecoverableError as error:
                errors.append((worker.rank, type(error).__name__))
                worker.rejoin()
                step = worker.sync_state(state, step)
                continue
            state += gradient
            step += 1
        return state

    with switch:
        for state in together(switch.addresses, 2, body, elastic=True, evict_s=1.0):
            np.testing.assert_array_equal(state, np.full(3000, 3.0 * steps))
    assert {rank for rank, _ in errors} == {0, 1} and len(errors) <= 4


def test_silences_are_kept_while_nothing_arrives(monkeypatch):
    """Nothing else would look at the clock until it has wrapped."""
    looked_us = []
    with new_server() as server:
        monkeypatch.setattr(server.switch, "keep_silences", looked_us.append)
        for _ in range(2):
            server.step(timeout_ms=20)
    assert len(looked_us) == 2 and 20_000 <= (looked_us[1] - looked_us[0]) % 2**32 < 2**28
