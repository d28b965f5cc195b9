"""The replay service of the emulated board, by default."""

from dataclasses import fields, replace
from typing import Any

from iswitch.config import Replay

__all__ = ["EMULATED", "parse_replay"]

EMULATED = Replay(capacity=1 << 15, log_bytes=1 << 25)
"""Large enough for learning; a log holds the frames of a few thousand transitions of Atari games."""


def parse_replay(given: str | None) -> Replay | None:
    """Parse `default`, or `capacity=65536,log_bytes=1048576`; other sizes are those of `EMULATED`. Raises ValueError
    with the reason."""
    if given is None or given == "default":
        return EMULATED if given else None
    sizes = dict(part.partition("=")[::2] for part in given.split(","))
    known = [field.name for field in fields(Replay) if field.type is int]
    if wrong := [f"{name}={size}" for name, size in sizes.items() if name not in known or not size.isdecimal()]:
        raise ValueError(f"--replay {', '.join(wrong)}: not one of {', '.join(known)} with a whole number")
    given_sizes: dict[str, Any] = {name: int(size) for name, size in sizes.items()}
    return replace(EMULATED, **given_sizes)
