"""The limits of a table: when clients may sample and add."""

import math
from dataclasses import dataclass

import numpy as np

from iswitch.config import Replay
from iswitch.wire.replay import LIMITS

__all__ = ["Limits"]

_RATIO_UNIT = 65536  # the switch has samples per insert in units of 2^-16


@dataclass(frozen=True)
class Limits:
    """The parameters of `ReplayClient.set_limits` of the same names."""

    min_size_to_sample: int
    samples_per_insert: float
    max_insert_lag: int | None
    max_insert_lead: int | None
    max_times_sampled: int

    def encode(self, config: Replay, items_per_datagram: int) -> bytes:
        """Return the body of a LIMIT request.

        Parameters
        ----------
        config : Replay
            What the replay service was built with.
        items_per_datagram : int
            The most items that a client adds at once.

        Returns
        -------
        bytes
            The body.

        Raises
        ------
        ValueError
            If a limit is out of range, or if adds and samples could wait for each other.
        """
        ratio = self.samples_per_insert
        if not 0 <= ratio < 65536:
            raise ValueError(f"samples_per_insert must be 0 to 65536, not {ratio!r}")
        fixed = round(ratio * _RATIO_UNIT)
        if ratio and not fixed:
            raise ValueError(f"samples_per_insert must be 0, or at least 1/65536, not {ratio!r}")
        margin = 2 * max(config.samples_per_request, math.ceil(ratio * items_per_datagram))
        lag = margin if self.max_insert_lag is None else self.max_insert_lag
        lead = margin if self.max_insert_lead is None else self.max_insert_lead
        values = {
            "min_size_to_sample": ("size", self.min_size_to_sample),
            "samples_per_insert": ("ratio", fixed),
            "max_insert_lag": ("behind", lag),
            "max_insert_lead": ("ahead", lead),
            "max_times_sampled": ("times", self.max_times_sampled),
        }
        for name, (_, value) in values.items():
            if not 0 <= value < 2**32:
                raise ValueError(f"{name} must be 0 to {2**32 - 1}, not {value!r}")
        if self.min_size_to_sample > config.capacity:
            raise ValueError(
                f"min_size_to_sample must be at most the table's capacity, {config.capacity}, or nothing is ever "
                f"sampled, not {self.min_size_to_sample!r}"
            )
        if ratio and lag + lead < ratio * items_per_datagram + 1:
            raise ValueError(
                f"max_insert_lag + max_insert_lead must be at least {math.ceil(ratio * items_per_datagram + 1)}, one "
                "datagram of "
                f"{items_per_datagram} items and one sample, or adds and samples could wait for each other, not "
                f"{lag + lead}"
            )
        body = np.zeros(1, LIMITS)
        for field, value in values.values():
            body[field] = value
        return body.tobytes()
