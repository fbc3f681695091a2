"""Watch every mixture-of-experts layer during the model's own forward, and gather its statistics."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sere.calibration.cka import cka
from sere.calibration.config import CalibrationConfig
from sere.calibration.experts import ExpertCall
from sere.calibration.moments import Moments, exact_device
from sere.calibration.norm_predictor import RoutedLengths
from sere.calibration.routed import RoutedMoments
from sere.calibration.similarity import BatchMeans
from sere.errors import CalibrationError

_CHUNK_BYTES = 256 * 2**20


class Layer(Protocol):
    """What is needed of a layer that an engine found."""

    @property
    def name(self) -> str:
        """Module path of the experts module."""
        ...

    @property
    def module(self) -> nn.Module:
        """The experts module."""
        ...

    @property
    def num_experts(self) -> int:
        """E."""
        ...


class Walk:
    """Statistics of all layers, gathered batch by batch.

    Held at once: a few [E, E] sums for each layer, and all experts' outputs for one chunk of tokens, or
    for one batch of tokens if any CKA is asked for.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        config: CalibrationConfig,
        done: Callable[[str, int], None],
        means: Callable[[int], BatchMeans] = BatchMeans,
    ) -> None:
        self.layers, self.config, self.done = layers, config, done
        self.means = {layer.name: means(config.batches) for layer in layers}
        self.seen: list[str] = []

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Watch the layers while inside; the hooks come off whatever happens."""
        handles = [
            layer.module.register_forward_hook(self._hook(layer), with_kwargs=True) for layer in self.layers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def run(self, forward: Callable[[], object]) -> None:
        """Run one batch through the model and see that every layer was met once.

        Raises:
            CalibrationError: If a layer was not, or gave NaN, or is no weighted sum of its experts.

        """
        self.seen = []
        forward()
        missed = [layer.name for layer in self.layers if self.seen.count(layer.name) != 1]
        if missed:
            times = self.seen.count(missed[0])
            raise CalibrationError(
                f"layer {missed[0]} ran {times} times on a batch of text instead of once, so this model "
                "cannot be calibrated. Report the model family."
            )

    def _hook(self, layer: Layer) -> Callable[..., None]:
        names = tuple(inspect.signature(type(layer.module).forward).parameters)[1:4]

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            inputs = (*args, *(kwargs[name] for name in names[len(args) :]))
            call = ExpertCall(layer.name, module, layer.num_experts, inputs)
            self._gather(layer, call, output[0] if isinstance(output, tuple) else output)
            self.seen.append(layer.name)
            self.done(layer.name, len(self.seen))

        return hook

    def _gather(self, layer: Layer, call: ExpertCall, mixture: Tensor) -> None:
        means = self.means[layer.name]
        moments = Moments(layer.num_experts, exact_device(call.hidden))
        routed = RoutedMoments(layer.num_experts) if self.config.routed_moments else None
        lengths = RoutedLengths() if self.config.norm_predictor else None
        kept: list[Tensor] = []
        for outputs in call.outputs(self._chunk(layer, call)):
            if not means.batches and not moments.tokens:
                call.check(outputs, mixture)
            rows = slice(moments.tokens, moments.tokens + outputs.shape[1])
            for each in (routed, lengths):
                if each is not None:
                    each.add(outputs, call.ids[rows], call.weights[rows])
            moments.add(outputs)
            if self.config.cka:
                kept.append(outputs)
        broken = moments.broken_expert()
        if broken is not None:
            raise CalibrationError(
                f"expert {broken} of layer {layer.name} gave NaN or infinite outputs. Load the model in "
                "float32 or bfloat16, and check its weights."
            )
        more = cka(torch.cat(kept, 1), self.config.cka) if kept else {}
        more |= routed.sums() if routed is not None else {}
        more |= lengths.rows(call.hidden) if lengths is not None else {}
        means.add(moments, more)

    def _chunk(self, layer: Layer, call: ExpertCall) -> int:
        return self.config.chunk_tokens or fitting_chunk(layer.num_experts, call.hidden.shape[1])


def fitting_chunk(experts: int, width: int) -> int:
    """Tokens for which the outputs of all experts fit into 256 MB."""
    return max(1, _CHUNK_BYTES // (8 * experts * width))
