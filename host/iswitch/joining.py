"""What workers of synchronous and of asynchronous jobs have in common: how their arguments are checked, and how they sign off."""

import os
from typing import Protocol

import numpy as np

from iswitch.control import Control, Membership
from iswitch.transport import Attending, Transport
from iswitch.wire import EVICT_US_MAX, SILENCE_TICK_US, Format

__all__ = ["FORMATS", "demand_evict", "demand_int", "demand_seconds", "sign_off"]

FORMATS = {"window64": Format.WINDOW64, "fp32": Format.FP32, "int32": Format.INT32}


class Member(Protocol):
    @property
    def membership(self) -> Membership: ...


def sign_off(control: Control, member: Member, attendant: Attending, transport: Transport, owner_pid: int, state: dict[str, bool]) -> bool:
    """Leaves the job and closes the transport; whether the switch confirmed it. Also at the interpreter's exit, so that a script that ends
    with an error does not leave its job running."""
    if os.getpid() != owner_pid:  # a forked child must not sign its parent off
        return False
    attendant.stop()
    known = state["member"] and control.leave(member.membership)
    transport.close()
    return known


def demand_int(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {value!r}")


def demand_seconds(**seconds: float) -> None:
    for name, value in seconds.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value!r}")


def demand_evict(evict_s: float) -> None:
    if not (evict_s == 0 or SILENCE_TICK_US <= evict_s * 1e6 < EVICT_US_MAX):
        raise ValueError(f"evict_s must be 0, or {SILENCE_TICK_US / 1e6:.3f} to {EVICT_US_MAX / 1e6:.1f}, not {evict_s!r}")
