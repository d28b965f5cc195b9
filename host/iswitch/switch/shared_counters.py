"""The counters of a software switch, in arrays in which the data path counts, too."""

from typing import Any

import numpy as np

from iswitch.golden.counters import Counters
from iswitch.golden.replay.service import Service

__all__ = ["SharedCounters"]


class SharedCounters(Counters):
    """Counters as arrays of uint64. Parameters as of `Counters`."""

    def zeros(self, *shape: int) -> Any:
        return np.zeros(shape, np.uint64)

    def by_name(self, service: Service | None) -> dict[str, int]:
        return {name: int(count) for name, count in super().by_name(service).items()}

    def registers(self, service: Service | None) -> dict[int, int]:
        return {address: int(value) for address, value in super().registers(service).items()}
