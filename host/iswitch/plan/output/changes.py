"""What changes from one configuration to the next."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iswitch.plan.output.places import format_ranges
from iswitch.plan.topology.topology import natural_key

__all__ = ["list_changes", "read_configuration", "with_next_epoch"]


def read_configuration(path: Path) -> dict[str, Any]:
    """Return an earlier configuration. Raises ValueError if the file is not one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"epoch", "switches", "workers"} <= found.keys():
        raise ValueError(f"{path} is not a file that --config has written")
    return found


def _flatten(value: Any, at: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by their keys, joined by dots."""
    if isinstance(value, Mapping) and value:
        return {
            name: leaf
            for key, each in value.items()
            for name, leaf in _flatten(each, f"{at}.{key}" if at else str(key)).items()
        }
    return {at: value}


def list_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what differs at switches and workers between two configurations, a line for each difference."""
    before, after = (_flatten({name: config[name] for name in ("switches", "workers")}) for config in (old, new))
    lines = []
    for name in sorted(before.keys() | after.keys(), key=natural_key):
        if before.get(name) != after.get(name):
            values = [
                " ".join(str(_shorten(side[name])).split()) if name in side else "nothing" for side in (before, after)
            ]
            lines.append(f"{name}: {values[0]} -> {values[1]}")
    return lines


def _shorten(value: Any) -> Any:
    """Return ranks as ranges, members as a list of names with ports, and a path with dashes."""
    if isinstance(value, list) and value and all(isinstance(each, int) for each in value):
        return format_ranges(value)
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return ", ".join(f"{each.get('worker') or each.get('switch')} at port {each['port']}" for each in value)
    return "-".join(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else value


def with_next_epoch(old: Mapping[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the new configuration with its epoch, and the differences from the old one.

    The epoch is that of the old configuration, plus 1 if anything differs.
    """
    lines = list_changes(old, new)
    return new | {"epoch": int(old["epoch"]) + bool(lines)}, lines
