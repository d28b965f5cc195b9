"""Ranks of a process group as threads of one process."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch.distributed as dist

__all__ = ["TIMEOUT", "run_ranks"]

TIMEOUT = timedelta(seconds=30)


def run_ranks(size, body):
    """Call `body(rank, store)` in a thread for each rank; return the values by rank, or raise the first error."""
    store = dist.HashStore()
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(body, rank, store) for rank in range(size)]
        return [future.result(timeout=60) for future in futures]
