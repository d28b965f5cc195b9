"""Headers of results with the parity that `WaitingResults` gives them, for tests of what stands behind it."""

from typing import Any

from hw.interface.result import ResultHeader
from iswitch.config import Config
from sim.bench.stream import pack

__all__ = ["with_parity"]


def with_parity(config: Config, header: dict[str, Any]) -> dict[str, Any]:
    """Return the header with its parity, and for a GRANT with its mark, as fields of a `ResultHeader`."""
    layout = ResultHeader(config)
    covered = {name: value for name, value in header.items() if name not in ("recipients", "grant", "parity")}
    marks = {"grant": 7 * (header["length"] == 0)} if config.staleness else {}
    return header | marks | {"parity": pack(layout, covered).bit_count() % 2}
