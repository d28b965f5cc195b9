"""Options of the process group, from the program and from the environment."""

import os
from dataclasses import dataclass, field
from typing import Literal

from iswitch.control.settings import require_int, require_seconds
from iswitch.environment import read_number

__all__ = ["Options"]


def _fallback_of_environment() -> Literal["gloo"] | None:
    text = os.environ.get("ISWITCH_FALLBACK", "")
    if text in ("", "none"):
        return None
    if text == "gloo":
        return "gloo"
    raise ValueError(f'ISWITCH_FALLBACK must be "gloo" or "none", not {text!r}')


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `init_process_group("cpu:iswitch", pg_options=Options(...))`, and of the groups that are made later.

    Parameters
    ----------
    address : str, optional
        Address of the switch. Default: ISWITCH_ADDRESS or, without it, 127.0.0.1:27000.
    job : int
        Number of the job of the default group. Default: ISWITCH_JOB or, without it, 0. Other groups take free numbers.
    fraction : int
        Fraction bits of a float32 sum, as in `Worker`. Default 44: elements below 16384 take the usual path. A sum with
        larger elements, or with infinities or NaN, is right, too, and costs as many times more as there are ranks.
    fallback : {"gloo"}, optional
        What does the collectives that the switch cannot do, and all of them while the switch does not answer. Default:
        ISWITCH_FALLBACK; without it nothing does, and such a collective raises an error.
    switch_timeout_s : float
        Seconds without an answer of the switch before a collective raises SwitchUnreachableError, or goes to gloo.
    join_timeout_s : float
        Seconds to wait for the other ranks when a group is made.
    evict_s : float
        Seconds of silence of a rank before the switch evicts it while another one waits. A collective then raises
        WorkersMissingError.
    """

    address: str | None = None
    job: int = field(default_factory=lambda: read_number("ISWITCH_JOB", None, parameter="job", default=0))
    fraction: int = 44
    fallback: Literal["gloo"] | None = field(default_factory=_fallback_of_environment)
    switch_timeout_s: float = 10.0
    join_timeout_s: float = 120.0
    evict_s: float = 5.0

    def __post_init__(self) -> None:
        require_int("job", self.job, 0, 2**16 - 1)
        if self.fallback not in (None, "gloo"):
            raise ValueError(f'fallback must be "gloo" or None, not {self.fallback!r}')
        require_seconds(switch_timeout_s=self.switch_timeout_s, join_timeout_s=self.join_timeout_s)
