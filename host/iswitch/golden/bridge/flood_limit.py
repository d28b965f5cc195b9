"""How many frames a port may flood: a token bucket for each port (as storm control of other switches)."""

__all__ = ["BPDU_RESERVE", "BURST", "FloodLimit"]

BURST = 1023
"""Tokens of a full bucket, each for one frame."""
BPDU_RESERVE = 32
"""Only BPDUs may use a bucket with fewer tokens, so that a spanning tree sees a loop during a storm."""


class FloodLimit:
    """The buckets of all ports.

    Each bucket gets a token whenever `now_us` passes a multiple of `interval_us`, unless it is full. An `interval_us`
    of 0 is no limit.
    """

    def __init__(self, ports: int, interval_us: int) -> None:
        self.interval_us, self.tokens, self.ticks = interval_us, [BURST] * ports, 0

    def advance(self, now_us: int) -> None:
        """Advance to a time, modulo 2^32. An interval divides 2^32, so the count of intervals wraps without a gap."""
        if self.interval_us:
            ticks = now_us // self.interval_us
            passed = (ticks - self.ticks) % (2**32 // self.interval_us)
            self.ticks, self.tokens = ticks, [min(BURST, tokens + passed) for tokens in self.tokens]

    def admits(self, port: int, *, bpdu: bool) -> bool:
        """Return whether a port may flood one more frame, and take its token."""
        admitted = not self.interval_us or self.tokens[port] >= (1 if bpdu else BPDU_RESERVE)
        self.tokens[port] -= bool(self.interval_us) and admitted
        return admitted
