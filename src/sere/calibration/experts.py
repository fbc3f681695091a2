"""Outputs of every expert of a layer, through the model's own code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sere.errors import CalibrationError

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}


class ExpertCall:
    """One call of an experts module, caught by a forward hook.

    The module is called again with one slot a row and weight one, so whatever it does inside an
    expert (biases, gates, norms, transposed weights) is done here too. ``module.forward`` is called
    rather than the module, so no hook runs a second time.

    Args:
        name: Module path, for messages.
        module: The experts module.
        num_experts: E, routed experts.
        inputs: Its positional arguments followed by its keyword arguments' values: hidden states
            [..., H], then ids and weights [T, K] in the order of the module's own signature.

    """

    def __init__(self, name: str, module: nn.Module, num_experts: int, inputs: tuple[Any, ...]) -> None:
        self.name, self.module, self.num_experts = name, module, num_experts
        self.hidden: Tensor = inputs[0].reshape(-1, inputs[0].shape[-1])
        self.ids: Tensor = inputs[1].reshape(self.hidden.shape[0], -1)
        self.weights: Tensor = inputs[2].reshape(self.hidden.shape[0], -1)
        if not bool(self.hidden.isfinite().all()):
            raise CalibrationError(
                f"the input of layer {name} has NaN or infinite values. Load the model in float32 or "
                "bfloat16, and check its weights."
            )

    @property
    def tokens(self) -> int:
        """N, rows of the call."""
        return self.hidden.shape[0]

    def outputs(self, chunk: int) -> Iterator[Tensor]:
        """Yield the outputs of all experts for ``chunk`` tokens at a time, shape [E, C, H], model dtype."""
        experts = torch.arange(self.num_experts, device=self.ids.device, dtype=self.ids.dtype)
        for rows in torch.split(self.hidden, chunk):
            count = rows.shape[0]
            repeated = rows.unsqueeze(0).expand(self.num_experts, -1, -1).reshape(-1, rows.shape[1])
            with _gathering_avoided(self.module):
                result = self._run(repeated, experts.repeat_interleave(count).unsqueeze(1))
            yield result.reshape(self.num_experts, count, -1)

    def _run(self, rows: Tensor, ids: Tensor) -> Tensor:
        weights = torch.ones_like(ids, dtype=self.weights.dtype)
        try:
            result: Tensor = self.module.forward(rows, ids, weights)
        except ValueError:
            # LongCat's loop breaks where a row has one slot; a second one of weight zero adds nothing.
            pair = torch.cat([weights, torch.zeros_like(weights)], 1)
            result = self.module.forward(rows, ids.expand(-1, 2), pair)
        return result

    def check(self, outputs: Tensor, mixture: Tensor) -> None:
        """See that weights times outputs sum to what the layer itself gave.

        Args:
            outputs: Outputs of all experts for the first C tokens, shape [E, C, H].
            mixture: The layer's own output, shape [..., H].

        Raises:
            CalibrationError: If not: then the module is no weighted sum of experts.

        """
        count = outputs.shape[1]
        own = mixture.reshape(-1, mixture.shape[-1])[:count].double()
        ids, weights = self.ids[:count].long(), self.weights[:count].double()
        routed = (ids >= 0) & (ids < self.num_experts)
        if not bool((routed | (weights == 0)).all()):
            return  # Slots of experts without weights of their own cannot be rebuilt from the others.
        safe = ids.clamp(0, self.num_experts - 1)
        rebuilt = torch.zeros_like(own)
        for slot in range(ids.shape[1]):
            chosen = outputs[safe[:, slot], torch.arange(count, device=ids.device)].double()
            rebuilt += torch.where(routed[:, slot, None], weights[:, slot, None] * chosen, 0.0)
        error = float((rebuilt - own).norm() / own.norm().clamp(min=1e-30))
        if bool(own.isfinite().all()) and error > _TOLERANCE.get(outputs.dtype, 5e-2):
            raise CalibrationError(
                f"the output of layer {self.name} is no weighted sum of its experts' outputs (off by "
                f"{error:.1%}). Such a layer cannot be calibrated; report this model family."
            )


@contextlib.contextmanager
def _gathering_avoided(module: nn.Module) -> Iterator[None]:
    """Keep Transformers from copying an expert's weights once for each row."""
    config = getattr(module, "config", None)
    if getattr(config, "_experts_implementation", None) != "batched_mm":
        yield
        return
    config._experts_implementation = "grouped_mm"  # type: ignore[union-attr]
    try:
        yield
    finally:
        config._experts_implementation = "batched_mm"  # type: ignore[union-attr]
