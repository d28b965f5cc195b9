"""Hosts on this machine: network namespaces, with a pair of Ethernet interfaces (veth) between two of them.

The namespaces have no names. They end with the process, so nothing is left behind.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

__all__ = ["Host", "at", "connect", "obstacle"]

_CLONE_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"
_STEP_S = 60
_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: int) -> None:
    if getattr(_libc, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


class Host:
    """A network namespace."""

    def __init__(self) -> None:
        before = os.open(_OWN, os.O_RDONLY)
        try:
            _call("unshare", _CLONE_NEWNET)
            self._descriptor = os.open(_OWN, os.O_RDONLY)
            self.run("ip", "link", "set", "lo", "up")
        finally:
            _call("setns", before, _CLONE_NEWNET)
            os.close(before)

    @property
    def path(self) -> str:
        """A file by which other processes enter the namespace."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def run(self, *command: str) -> str:
        """Run a command in the namespace of the calling thread. Return what it prints."""
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_STEP_S).stdout

    @contextmanager
    def inside(self) -> Iterator[Self]:
        """Within this context, the calling thread and the threads and processes that it starts are at this host."""
        with at(self.path):
            yield self

    def close(self) -> None:
        """Give the namespace up. It ends with the last socket and process in it."""
        os.close(self._descriptor)


@contextmanager
def at(path: str) -> Iterator[None]:
    """Within this context, the calling thread is in the namespace of a file (`Host.path`)."""
    before, there = os.open(_OWN, os.O_RDONLY), os.open(path, os.O_RDONLY)
    try:
        _call("setns", there, _CLONE_NEWNET)
        yield
    finally:
        _call("setns", before, _CLONE_NEWNET)
        os.close(before)
        os.close(there)


@contextmanager
def connect(mtu: int = 1500) -> Iterator[tuple[Host, Host]]:
    """Yield two hosts, 10.99.0.1 at the interface `near` and 10.99.0.2 at `far`, with a cable between them."""
    hosts = (Host(), Host())
    try:
        one, two = hosts
        with one.inside():
            pair = ("peer", "name", "far", "netns", two.path)
            one.run("ip", "link", "add", "near", "type", "veth", *pair)
        for number, host, name in ((1, one, "near"), (2, two, "far")):
            with host.inside():
                host.run("ip", "address", "add", f"10.99.0.{number}/24", "dev", name)
                host.run("ip", "link", "set", name, "mtu", str(mtu), "up")
        yield one, two
    finally:
        for host in hosts:
            with suppress(OSError):
                host.close()


def obstacle() -> str:
    """Return why there can be no such hosts on this machine, and what helps; "" if there can."""
    if not shutil.which("ip"):
        return "there is no `ip` (Debian: iproute2)"
    try:
        with connect():
            return ""
    except OSError as error:
        return f"this process may not make network namespaces ({error}): run it as root"
    except subprocess.CalledProcessError as error:
        return f"this process may not make interfaces ({error.stderr.strip()}): run it as root"
