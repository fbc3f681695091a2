"""How far a calibration has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """State after one layer of one batch.

    Attributes:
        batch: Batch being worked on, from 0.
        batches: Batches in all.
        layer: Module path of the layer just done.
        layers_done: Layers done in this batch.
        layers: Layers in all.
        tokens_per_second: Calibration tokens through the whole model, averaged since the start.
        seconds_left: Estimate from the speed so far.

    """

    batch: int
    batches: int
    layer: str
    layers_done: int
    layers: int
    tokens_per_second: float
    seconds_left: float

    @property
    def fraction(self) -> float:
        """Share of the work done, 0 to 1."""
        return (self.batch + self.layers_done / self.layers) / self.batches


class Meter:
    """Tells a callback after each layer."""

    def __init__(
        self, callback: Callable[[Progress], None] | None, batches: int, layers: int, tokens: int
    ) -> None:
        self.callback = callback
        self.batches, self.layers, self.tokens = batches, layers, tokens
        self.started = time.monotonic()

    def tick(self, batch: int, layer: str, layers_done: int) -> None:
        """Report that ``layer`` of ``batch`` is done."""
        if self.callback is None:
            return
        seconds = max(time.monotonic() - self.started, 1e-9)
        fraction = (batch + layers_done / self.layers) / self.batches
        speed = fraction * self.tokens / seconds
        left = seconds * (1 - fraction) / fraction
        self.callback(Progress(batch, self.batches, layer, layers_done, self.layers, speed, left))
