"""Several processes on one calibration: each takes some batches, and the sums are everybody's.

Values are added in the order of the batches, whoever worked them out, so that the number of processes
does not change a bit of the result.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
from torch import Tensor

from sere.calibration.similarity import BatchMeans


class Processes:
    """The processes that ``torchrun`` started, or this one alone.

    Attributes:
        rank: This process's number, from 0.
        count: Processes in all.

    """

    def __init__(self) -> None:
        wanted = int(os.environ.get("WORLD_SIZE", "1"))
        if wanted > 1 and not dist.is_initialized():
            dist.init_process_group("gloo")
        self.count = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        self.rank = dist.get_rank() if self.count > 1 else 0

    def rounds(self, batches: int) -> list[int | None]:
        """Own batch of each round, in which every process works on one; None where it has none left."""
        numbers = range(self.rank, -(-batches // self.count) * self.count, self.count)
        return [number if number < batches else None for number in numbers]

    def gathered(self, value: Any) -> list[Any]:
        """Values of all processes in the order of their numbers; every process must take part."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, value)
        return found

    def means(self, expected: int) -> BatchMeans:
        """Make the sums of one layer over so many batches, which all processes share."""
        return BatchMeans(expected) if self.count == 1 else SharedMeans(expected, self)


class SharedMeans(BatchMeans):
    """Sums over the batches of all processes, the same in each of them."""

    def __init__(self, expected: int, processes: Processes) -> None:
        super().__init__(expected)
        self._processes = processes

    def take(self, values: dict[str, Tensor] | None) -> None:
        """Add one batch of every process; None from one that has no batch left."""
        for each in self._processes.gathered(values):
            if each is not None:
                super().take(each)
