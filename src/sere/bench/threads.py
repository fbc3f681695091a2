"""How many CPU threads to measure with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MOST = 2
"""Threads tried: decoding is bound by memory, and few cores fill the memory's bandwidth."""


@contextmanager
def pinned(threads: int | None = None) -> Iterator[int]:
    """Run with a fixed number of CPU threads, and put the old number back.

    Args:
        threads: The number; None takes :func:`fastest`.

    """
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads or fastest())
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def fastest() -> int:
    """Return the number of threads, at most :data:`MOST`, that reads weights fastest just now.

    Threads that wait for each other on busy cores are slower than one: so it is tried, in well under
    a second, and not guessed from the number of cores.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    before = torch.get_num_threads()
    try:
        times = {threads: _trial(threads) for threads in range(1, min(MOST, cores) + 1)}
    finally:
        torch.set_num_threads(before)
    # More threads must be clearly faster, or their waiting will show up as noise.
    return min(times, key=lambda threads: times[threads] * 1.1**threads)


def _trial(threads: int) -> float:
    torch.set_num_threads(threads)
    rows, weights = torch.randn(16, 2048), torch.randn(16, 2048, 1536)
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        for weight in weights:
            rows @ weight
        best = min(best, time.perf_counter() - start)
    return best
