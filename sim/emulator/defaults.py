"""The switch that `python -m sim.emulator` runs unless its options say otherwise."""

from dataclasses import replace

from iswitch.config import Config

__all__ = ["EMULATED", "roomy_queue_bytes"]


def roomy_queue_bytes(window: int, elements: int) -> int:
    """Return the least `Config.queue_bytes` with room for a window of results, so that several workers can share a
    port."""
    least = Config(elements=elements, queue_bytes=1 << 20)
    bytes_needed = max(window, 2) * (least.frame_bytes_max + 64)
    return max(Config().queue_bytes, 1 << (bytes_needed - 1).bit_length())


EMULATED = replace(Config(), queue_bytes=roomy_queue_bytes(Config().window, Config().elements))
