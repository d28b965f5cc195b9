"""What a user asks of `iswitch plan`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PlanRequest"]


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """The options of `iswitch plan`; `command.py` explains them."""

    topology: Path
    kind: str
    remove: Sequence[str]
    upgrade: int
    upgrade_gbps: float | None
    reserve: Sequence[str]
    return_path: str | None
    max_trees: int | None
    max_slots: int | None
    adjacent: bool
    time_s: float
    only: bool
    with_seconds: bool
    svg: Path | None
    config: Path | None
    previous: Path | None
    keep: Path | None
    keep_within: float
    scale: float
    topology_json: Path | None
    as_json: bool

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the job that are given as options."""
        names = ("return_path", "max_trees", "max_slots")
        return {name: value for name in names if (value := getattr(self, name)) is not None}
