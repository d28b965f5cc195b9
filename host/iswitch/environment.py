"""A worker whose rank, world and switch come from the environment, as torchrun and other launchers set it."""

import os
from collections.abc import Mapping
from typing import Any

from iswitch.worker import Worker

__all__ = ["init", "read_number"]


def init(
    address: str | None = None,
    *,
    world: int | None = None,
    rank: int | None = None,
    job: int | None = None,
    key: int | None = None,
    format: str | None = None,
    **settings: Any,
) -> Worker:
    """Join a job, with the arguments that are missing taken from the environment.

    Parameters
    ----------
    address : str, optional
        Address of the switch. Default: ISWITCH_ADDRESS or, without it, 127.0.0.1:27000.
    world : int, optional
        Number of workers in the job. Default: WORLD_SIZE.
    rank : int, optional
        This worker's rank. Default: RANK.
    job : int, optional
        Number of the job at the switch. Default: ISWITCH_JOB or, without it, 0.
    key : int, optional
        Number that keeps other programs out of the job. Default: as in `Worker`, so ISWITCH_KEY or, without it, a
        number that follows from the run that torchrun or Slurm has started.
    format : str, optional
        Number format of the job. Default: ISWITCH_FORMAT or, without it, "window64".
    **settings
        Other parameters of `Worker`.

    Returns
    -------
    Worker
        The worker, which has joined.

    Raises
    ------
    ValueError
        If a variable is missing or not a whole number, or an argument is wrong.
    IswitchError
        As `Worker`.

    Examples
    --------
    >>> import iswitch
    >>> worker = iswitch.init()  # doctest: +SKIP
    """
    return Worker(
        address,
        world=read_number("WORLD_SIZE", world, parameter="world"),
        rank=read_number("RANK", rank, parameter="rank"),
        job=read_number("ISWITCH_JOB", job, parameter="job", default=0),
        key=key,
        # `Worker` checks the name and raises the error; the type of a variable of the environment is only str.
        format=format or os.environ.get("ISWITCH_FORMAT", "").strip() or "window64",  # type: ignore[arg-type]
        **settings,
    )


def read_number(
    variable: str,
    argument: int | None,
    *,
    parameter: str,
    default: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Return an argument or, if it is None, the number in an environment variable.

    Parameters
    ----------
    variable : str
        Name of the environment variable.
    argument : int or None
        The program's argument, which wins.
    parameter : str
        Name of the argument, for the message.
    default : int, optional
        The number if the variable is not set. Default: the variable must be set.
    environment : mapping of str to str, optional
        The environment; default `os.environ`.

    Raises
    ------
    ValueError
        If the variable is missing or not a whole number.
    """
    if argument is not None:
        return argument
    text = (os.environ if environment is None else environment).get(variable, "").strip()
    if not text:
        if default is not None:
            return default
        raise ValueError(
            f"{parameter} is unknown, because the environment variable {variable} is not set: start the script with "
            f"`torchrun --nproc-per-node 4 train.py`, which sets it, or set {variable} for each worker, or pass "
            f"`{parameter}=`"
        )
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{variable} must be a whole number, decimal or with 0x in front, not {text!r}") from None
