"""The key of a job whose program names none: from the environment, or from the launcher that started the workers."""

import hashlib
import os
from collections.abc import Mapping

from iswitch.control.settings import require_int
from iswitch.driver.address import parse_address

__all__ = ["KEY_VARIABLE", "default_key", "job_key"]

KEY_VARIABLE = "ISWITCH_KEY"
"""Name of the environment variable that gives the key: a whole number, decimal or with 0x in front."""
_LAUNCHERS = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
    "Slurm": ("SLURM_JOB_ID", "SLURM_CLUSTER_NAME"),
}
"""Variables that a launcher sets to the same values in all workers of a run. The first one shows that it is there."""


def job_key(key: int | None, *, world: int, address: str, own_transport: bool = False) -> int:
    """Return the key of a worker's job, so that two programs that know nothing of each other never share a job.

    Parameters
    ----------
    key : int or None
        The key that the program has named.
    world : int
        Workers of the job.
    address : str
        The switch's address. An emulator on this machine needs no key.
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
    if world > 1 and not own_transport and host != "localhost" and not host.startswith("127."):
        raise ValueError(
            f"key must be given for a job of {world} workers at {address}, because another program may use the same "
            f"job number: pass key=, the same number to all workers of this program, or set {KEY_VARIABLE} for all of "
            "them, for example to what `python -c 'import secrets; print(secrets.randbits(64))'` prints. torchrun and "
            "Slurm give one by themselves"
        )
    return 0


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
        so that another run has another one; or else None.

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
            run = "\0".join([launcher, *(environment.get(name, "") for name in names)])
            return int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "little")
    return None
