"""The replay service of a switch on this machine, the emulated board or the software switch: the option `--replay`."""

from dataclasses import fields, replace
from typing import Annotated, Any

from iswitch.config import Replay
from iswitch.switch.options import SWITCH, option

__all__ = ["USUAL", "ReplayOption", "parse_replay"]

ReplayOption = Annotated[
    str | None,
    option(
        panel=SWITCH,
        metavar="SIZES",
        help="Build the switch with a replay service: default, or sizes as in iswitch.config.Replay, such as "
        "capacity=65536,sessions=8.",
    ),
]


USUAL = Replay(capacity=1 << 15, log_bytes=1 << 25)
"""Large enough for learning; a log holds the frames of a few thousand transitions of Atari games."""


def parse_replay(given: str | None) -> Replay | None:
    """Parse `default`, or `capacity=65536,log_bytes=1048576`; other sizes are those of `USUAL`. Raises ValueError
    with the reason."""
    if given is None or given == "default":
        return USUAL if given else None
    sizes = dict(part.partition("=")[::2] for part in given.split(","))
    known = [field.name for field in fields(Replay) if field.type is int]
    if wrong := [f"{name}={size}" for name, size in sizes.items() if name not in known or not size.isdecimal()]:
        raise ValueError(f"--replay {', '.join(wrong)}: not one of {', '.join(known)} with a whole number")
    given_sizes: dict[str, Any] = {name: int(size) for name, size in sizes.items()}
    return replace(USUAL, **given_sizes)
