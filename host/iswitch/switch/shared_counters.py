"""The counters of a software switch, in arrays in which the data path counts, too."""

import numpy as np

from iswitch.config import Config
from iswitch.golden.counters import Counters
from iswitch.golden.replay.service import Service
from iswitch.wire import STALENESS_MAX, Outcome, PortCounter, Stat

__all__ = ["SharedCounters"]


class SharedCounters(Counters):
    """Counters as arrays of uint64. Parameters as of `Counters`."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.outcomes: np.ndarray = np.zeros(max(Outcome) + 1, np.uint64)  # type: ignore[assignment]
        self.stats: np.ndarray = np.zeros(len(Stat), np.uint64)  # type: ignore[assignment]
        self.ages: np.ndarray = np.zeros(STALENESS_MAX + 1, np.uint64)  # type: ignore[assignment]
        self.ports: np.ndarray = np.zeros((config.ports, len(PortCounter)), np.uint64)  # type: ignore[assignment]

    def by_name(self, service: Service | None) -> dict[str, int]:
        return {name: int(count) for name, count in super().by_name(service).items()}

    def registers(self, service: Service | None) -> dict[int, int]:
        return {address: int(value) for address, value in super().registers(service).items()}
