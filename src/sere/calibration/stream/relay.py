"""Run many forward passes side by side, decoder layer by decoder layer.

Every batch runs the model's own forward in a coroutine (a greenlet, so that the model's code need not
know) that pauses where a decoder layer begins. So all batches pass one layer before any enters the next,
whatever the model does before, between and after its layers, and only that layer's weights have to be there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from sere.errors import CalibrationError

Keep = Callable[[int, int, Any], Any]
"""Called with layer, batch and the layer's output; what it returns goes on in its place."""


class Relay:
    """All batches on their way through the layers.

    Args:
        stages: The decoder layers, in the order in which the model calls them.
        keep: See :data:`Keep`.

    Attributes:
        inputs: By batch, what the layer where it pauses was called with.

    """

    def __init__(self, stages: Sequence[nn.Module], keep: Keep) -> None:
        from greenlet import greenlet  # an extra: whoever does not stream need not have it

        self.stages, self.keep, self._greenlet = stages, keep, greenlet
        self.batches: dict[int, Any] = {}
        self.place: dict[int, int | None] = {}
        self.inputs: dict[int, Any] = {}
        self.skipped = 0
        self.stored: Callable[[int], Any] = lambda _: None
        self._current = 0

    def open(self, skipped: int, stored: Callable[[int], Any]) -> None:
        """Take over the layers' forward; the first ``skipped`` only return ``stored(batch)``."""
        self.skipped, self.stored = skipped, stored
        for index, module in enumerate(self.stages):
            turn = functools.partial(self._turn, index, module.forward)
            module.__dict__["forward"] = functools.wraps(module.forward)(turn)

    def close(self) -> None:
        """End all batches and give the layers their own forward back."""
        batches, self.batches = self.batches, {}
        for batch in batches.values():
            if not batch.dead:
                batch.throw()
        self.inputs.clear()
        for module in self.stages:
            module.__dict__.pop("forward", None)

    def start(self, batch: int, forward: Callable[[], object]) -> None:
        """Run a batch up to its first layer that is not skipped.

        Raises:
            CalibrationError: If the model does not come there.

        """
        self.batches[batch] = self._greenlet(forward)
        self._go(batch)
        if self.place[batch] != self.skipped:
            raise CalibrationError(
                f"the model did not call its decoder layers one after another from the first (layer "
                f"{self.place[batch]} came when {self.skipped} was due), so it cannot be streamed. "
                "Add --in-memory."
            )

    def advance(self, batch: int, stage: int) -> None:
        """Run a batch through one layer and up to the next.

        Raises:
            CalibrationError: If that was not the layer due, or another came after it.

        """
        self._go(batch)
        after = stage + 1 if stage + 1 < len(self.stages) else None
        if self.place[batch] not in (after, None):
            raise CalibrationError(
                f"the model called its decoder layer {self.place[batch]} after layer {stage}, so it cannot "
                "be streamed. Add --in-memory."
            )

    def _go(self, batch: int) -> None:
        self._current = batch
        self.place[batch] = None
        self.inputs.pop(batch, None)
        found = self.batches[batch].switch()
        if not self.batches[batch].dead:
            self.place[batch] = found

    def _turn(self, index: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        batch = self._current
        if index < self.skipped:
            return self.stored(batch)
        self.inputs[batch] = (args, kwargs)
        self._greenlet.getcurrent().parent.switch(index)
        return self.keep(index, batch, forward(*args, **kwargs))
