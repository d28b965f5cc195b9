"""Runs PyTorch's own cases for a backend of torch.distributed, one at a time, over the switch or over gloo.

The cases are those of `torch.testing._internal.distributed.distributed_test` that PyTorch runs for gloo. PyTorch's own
harness runs each in a process for each rank. Those that ask for GPUs have their tensors on the CPU
(`sim/bench/cpu_for_gpu.py`), and those for eight processes have as many as the others.
"""

import contextlib
import io
import logging
import os
import re
import signal
import tempfile
import time
import unittest
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

from iswitch.control.client import Control
from iswitch.driver.udp import UdpTransport
from iswitch.torch import UnsupportedError  # the import registers the backend
from sim.bench.cpu_for_gpu import count_no_gpus, keep_on_cpu
from sim.bench.flood import start_switch

__all__ = ["LIMIT_S", "Case", "Runner", "open_runner"]

OPERATOR_KEY = 0x7E57
JOBS = 16
LIMIT_S = 120.0
"""Limit of a case."""
_HARNESS_S = 30.0
"""How much longer than the limit PyTorch's harness may take to report a case that exceeds it."""
_LOOK_S = 0.2
_FORK = torch.multiprocessing.get_context("fork")  # ranks inherit the imported torch


class Case(NamedTuple):
    """What came of a case."""

    name: str
    outcome: str
    """"passed", "failed", or "skipped" by PyTorch itself."""
    text: str
    """The error of the first rank that failed, with its traceback, or why PyTorch skips the case."""
    seconds: float

    @property
    def error(self) -> str:
        """The error in one line."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        raised = [line for line in lines if line[0].isalpha() and "Error: " in line and "Error: Process" not in line]
        return (raised or lines[-1:] or [""])[0]

    @property
    def refusal(self) -> str | None:
        """What the backend has refused by name."""
        found = re.search(rf"{UnsupportedError.__name__}: (the switch [^:;.,]*)", self.text)
        return found and found.group(1)


class _Backend(str):
    """The name of a backend. It equals "gloo", too, so that a case that asks for gloo goes on as over gloo."""

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) or other == "gloo"

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class Runner:
    """Runs cases. It changes this process for good (environment, torch), so give it a process of its own.

    Parameters
    ----------
    ranks : int
        Processes of a case.
    address : str
        Address of the switch, which has the operator key `OPERATOR_KEY`.
    limit_s : float
        Limit of a case.

    Attributes
    ----------
    limit_s : float
        Limit of a case.
    """

    def __init__(self, ranks: int, address: str, limit_s: float = LIMIT_S) -> None:
        self._address = address
        self._scratch = tempfile.TemporaryDirectory()
        os.environ |= {
            "BACKEND": "gloo",  # decides at the import which cases there are
            "WORLD_SIZE": str(ranks),
            "TEMP_DIR": self._scratch.name,
            "INIT_METHOD": f"file://{self._scratch.name}/init",
            "MASTER_ADDR": "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "lo",
            "ISWITCH_ADDRESS": address,
        }
        torch.set_num_threads(1)
        count_no_gpus()
        from torch.testing._internal import common_distributed
        from torch.testing._internal.distributed import distributed_test

        keep_on_cpu(distributed_test)
        common_distributed.TIMEOUT_OVERRIDE.clear()
        os.environ["BACKEND"] = "mpi"  # with this one, cases for eight processes or more run with fewer, too
        for feature in ("cuda", "ddp", "subgroup"):
            common_distributed.DistTestCases.backend_feature[feature].add("iswitch")

        class Cases(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
            def setUp(self) -> None:
                super().setUp()
                self._start_processes(_FORK.Process)

        self._module, self._cases, self.limit_s = distributed_test, Cases, limit_s
        self._harness, self._stopped = common_distributed, False

    def names(self) -> list[str]:
        """Return the names of all cases."""
        return list(unittest.TestLoader().getTestCaseNames(self._cases))

    def run(self, name: str, *, backend: str = "iswitch", fallback: str = "none") -> Case:
        """Run a case in a process group of its own. Whatever it leaves is killed.

        Parameters
        ----------
        name : str
            The case.
        backend : str
            "iswitch" or "gloo".
        fallback : {"none", "gloo"}
            The option `fallback` of our backend.
        """
        begun = time.monotonic()
        receiver, sender = _FORK.Pipe(duplex=False)
        leader = _FORK.Process(target=self._lead, args=(name, backend, fallback, sender))
        leader.start()
        sender.close()
        try:
            outcome, text = self._result(receiver, leader, self.limit_s + _HARNESS_S)
        finally:
            receiver.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)
            leader.join()
        self._end_jobs()
        return Case(name, outcome, text, time.monotonic() - begun)

    def stop(self, *_: object) -> None:
        """End the case that runs, whose call then raises KeyboardInterrupt. A handler of signals must not raise: a fork
        ignores errors.
        """
        self._stopped = True

    def _result(self, receiver: Any, leader: Any, limit_s: float) -> tuple[str, str]:
        """Wait for outcome and text of a case."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if self._stopped:
                raise KeyboardInterrupt
            alive = leader.is_alive()  # ranks that go on without it keep the pipe open
            if receiver.poll(_LOOK_S):
                return receiver.recv()
            if not alive:
                return "failed", f"the harness has ended with exit code {leader.exitcode}"
        return "failed", f"no end within {limit_s:g} s"

    def _lead(self, name: str, backend: str, fallback: str, sender: Any) -> None:
        """Run a case by PyTorch's harness, which starts a process for each rank."""
        os.setpgrp()
        for kind in (signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, signal.SIG_DFL)
        os.environ["ISWITCH_FALLBACK"] = fallback
        self._module.BACKEND = _Backend(backend)
        self._harness.TIMEOUT_DEFAULT = self.limit_s
        result, said = unittest.TestResult(), io.StringIO()
        logger = logging.getLogger("torch.testing._internal.common_distributed")  # says where ranks are that do not end
        logger.handlers, logger.propagate = [logging.StreamHandler(said)], False
        logger.setLevel(logging.ERROR)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        self._cases(name).run(result)
        for outcome, found in (("skipped", result.skipped), ("failed", result.errors + result.failures)):
            if found:
                sender.send((outcome, found[0][1] + said.getvalue()))
                return
        sender.send(("passed", ""))

    def _end_jobs(self) -> None:
        """Free the jobs of processes that have not left them. A case that is skipped or fails leaves some."""
        transport = UdpTransport(self._address)
        control = Control(transport, address=self._address)
        for job in range(JOBS):
            if control.job(job).state:
                control.end_job(job, operator_key=OPERATOR_KEY)
        transport.close()


@contextlib.contextmanager
def open_runner(ranks: int = 4, limit_s: float = LIMIT_S) -> Iterator[Runner]:
    """Start a switch, and give a runner of cases over it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, ports = start_switch(stack, folder, "--jobs", str(JOBS), "--operator-key", str(OPERATOR_KEY))
        yield Runner(ranks, "{}:{}".format(*ports[0]), limit_s)
