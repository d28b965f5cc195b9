"""Records of measurements in JSON: what a file keeps of a number."""

from typing import Any

__all__ = ["rounded"]


def rounded(value: Any) -> Any:
    """Return a value, or all values of a dict, with four digits of each number that is no integer."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
