"""The key of a job whose program names none: from the environment, from the launcher, or from the process itself.

Two programs that know nothing of each other must never be workers of one job. The switch compares the keys of all
Joins, so it is enough that workers of one program have the same key, and workers of another program have another one.
`docs/rationale.md` says why a program is a process and its children.
"""

import contextlib
import getpass
import hashlib
import multiprocessing
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from iswitch.control.settings import require_int
from iswitch.driver.address import parse_address

__all__ = ["KEY_VARIABLE", "default_key", "describe_key", "job_key", "process_key"]

KEY_VARIABLE = "ISWITCH_KEY"
"""Name of the environment variable that gives the key: a whole number, decimal or with 0x in front."""
_LAUNCHERS = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
    "Slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME"),
}
"""Variables that a launcher sets to the same values in all workers of a run. The first one shows that it is there."""


def job_key(key: int | None, *, world: int, address: str, own_transport: bool = False) -> int:
    """Return the key of a worker's job, so that two programs that know nothing of each other never share a job.

    Parameters
    ----------
    key : int or None
        The key that the program has named. None: that of the environment or, without one, that of the process.
    world : int
        Workers of the job.
    address : str
        The switch's address. At an emulator on this machine, the key of the process is enough.
    own_transport : bool
        The program brings a transport, and with it a network of its own.

    Raises
    ------
    ValueError
        If neither the program nor the environment gives a key, and other programs may use the switch.
    """
    found = default_key() if key is None else key
    if found is not None:
        return found
    host, _ = parse_address(address)
    if world > 1 and not own_transport and not is_loopback(host):
        raise ValueError(
            f"key must be given for a job of {world} workers at {address}, because another program may use the same "
            f"job number: pass key=, the same number to all workers of this program, or set {KEY_VARIABLE} for all of "
            "them, for example to what `python -c 'import secrets; print(secrets.randbits(64))'` prints. torchrun and "
            "Slurm give one by themselves"
        )
    return process_key()


def default_key(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the key that the environment of a worker gives.

    Parameters
    ----------
    environment : mapping of str to str
        The environment variables of this process.

    Returns
    -------
    int or None
        The number in ISWITCH_KEY; or else a 64-bit number that follows from what torchrun or Slurm says about the run,
        so that another run has another one (if torchrun names only this machine, also from user, name and boot of the
        machine); or else None.

    Raises
    ------
    ValueError
        If ISWITCH_KEY is not a whole number of 64 bits.
    """
    if text := environment.get(KEY_VARIABLE, "").strip():
        try:
            key = int(text, 0)
        except ValueError:
            raise ValueError(
                f"{KEY_VARIABLE} must be a whole number, decimal or with 0x in front, not {text!r}"
            ) from None
        require_int(KEY_VARIABLE, key, 0, 2**64 - 1)
        return key
    for launcher, names in _LAUNCHERS.items():
        if names[0] in environment:
            texts = [environment.get(name, "") for name in names]
            if any(is_loopback(text) for text in texts):  # other machines have runs with the same variables
                texts += [_user(), *machine_texts()]
            return _hash(launcher, *texts)
    return None


def process_key() -> int:
    """Return the key that a worker has if neither its program nor the environment gives one.

    Only the threads of this process, the processes that it forks and those that `multiprocessing` starts have the same
    key, because they share the random `authkey` of `multiprocessing`. So two runs of one script have two keys.

    Returns
    -------
    int
        64 bits, which other processes cannot guess.
    """
    return _hash("process", multiprocessing.current_process().authkey.hex())


def describe_key(key: int) -> str:
    """Return how the workers of a program get the key of this process' job, as an imperative clause."""
    if key != process_key():
        return f"give all its workers the same `key=` or {KEY_VARIABLE}"
    return (
        f"give all its workers the same `key=` or {KEY_VARIABLE}: without one, only threads of one process, and the "
        "processes that `multiprocessing` starts from it, have the same key"
    )


def _user() -> str:
    """Return the user that owns this process, by a name that does not depend on the environment where possible."""
    return str(os.getuid()) if os.name == "posix" else getpass.getuser()


def is_loopback(host: str) -> bool:
    """Return True if a host's name or address means the machine itself."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d+){3}", host) is not None


def machine_texts() -> list[str]:
    """Return texts that processes on another machine, or in another container, do not have: host name, boot, and
    network namespace."""
    texts = [platform.node()]
    with contextlib.suppress(OSError):  # only Linux has these files
        texts += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/net")]
    return texts


def _hash(*parts: str) -> int:
    """Return 64 bits that follow from some texts."""
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest(), "little")
