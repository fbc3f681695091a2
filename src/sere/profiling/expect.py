"""What a policy does in steps of one size: experts read, and the time that the policy itself takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor

from sere.artifact import StepSize
from sere.engines.transformers import Handle
from sere.evaluation.decoding import LiveBatch
from sere.evaluation.stepwise import ExpertCount, Rerouting
from sere.profiling.measure import synchronise


@dataclass(eq=False)
class Stopwatch:
    """Adds up what lies between :meth:`start` and :meth:`stop`, on the device's own clock if it has one.

    Attributes:
        on_device: Whether to let a GPU record the times, so that nothing waits for it.

    """

    on_device: bool
    _marks: list[tuple[Any, Any]] = field(default_factory=list)
    _started: Any = None

    def start(self, *_: Any) -> None:
        """Mark a beginning."""
        self._started = self._now()

    def stop(self, *_: Any) -> None:
        """Mark the end of what :meth:`start` began."""
        self._marks.append((self._started, self._now()))

    def take(self) -> float:
        """Return the seconds since the last call; the device must have come to rest."""
        if self.on_device:
            total = sum(first.elapsed_time(last) for first, last in self._marks) / 1000
        else:
            total = sum(last - first for first, last in self._marks)
        self._marks.clear()
        return float(total)

    def _now(self) -> Any:
        if not self.on_device:
            return time.perf_counter()
        event: Any = torch.Event("cuda", enable_timing=True)
        event.record()
        return event


def expect(model: Any, ids: Tensor, rerouting: Rerouting, prompt: int) -> StepSize:
    """Decode a known text under a policy; count the experts read and time the policy's own hooks.

    The time is taken around the hooks while the model decodes, so caches and queues are as in service, and
    counting, which is on by default there, is in it.

    Args:
        model: A Transformers causal language model in evaluation mode.
        ids: Text, shape [B, L], int64; the first step after ``prompt`` tokens is not timed.
        rerouting: The policy.
        prompt: Tokens of prefill.

    """
    live, watch, experts = LiveBatch(model), Stopwatch(model.device.type == "cuda"), ExpertCount()
    seconds: list[float] = []
    with torch.inference_mode(), rerouting.on(model) as handle:
        if handle is None:
            raise TypeError("the unmodified model has no policy to time")
        live.prefill(ids[:, :prompt], torch.ones_like(ids[:, :prompt]))
        with _timed(handle, watch):
            for column in range(prompt, ids.shape[1]):
                live.step(ids[:, column])
                synchronise(model)
                seconds.append(watch.take())
        experts.add_all(handle.counters().decode)
    return StepSize(
        rows=ids.shape[0],
        before=experts.mean_before,
        after=experts.mean_after,
        overhead=median(seconds[1:] or seconds),
    )


@contextmanager
def _timed(handle: Handle, watch: Stopwatch) -> Iterator[None]:
    """Stand before and after the policy's own hooks, on every layer and on the model."""
    hooks = []
    try:
        for module in (*(layer.module for layer in handle.survey.layers), *handle.survey.models):
            hooks.append(module.register_forward_pre_hook(watch.start, prepend=True))
            hooks.append(module.register_forward_pre_hook(watch.stop))
        yield
    finally:
        for hook in hooks:
            hook.remove()
