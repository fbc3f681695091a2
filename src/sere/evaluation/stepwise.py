"""Logits of a known text, by decoding it step by step or in one forward of virtual steps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from sere.artifact import Artifact
from sere.engines.transformers import Handle, rerouted
from sere.evaluation.decoding import LiveBatch
from sere.evaluation.proxy import virtual_steps
from sere.routing import FIELDS, Policy

Mode = Literal["real", "proxy"]


@dataclass
class ExpertCount:
    """Distinct experts, summed over layers and steps.

    Attributes:
        steps: Pairs of layer and decoding step seen.
        before: Experts that the router chose.
        after: Experts that were read.
        slots: Row and slot pairs seen.
        rerouted: Those of them that the policy changed.
        layers: The same of each layer by itself, by name.

    """

    steps: int = 0
    before: int = 0
    after: int = 0
    slots: int = 0
    rerouted: int = 0
    layers: dict[str, ExpertCount] = field(default_factory=dict)

    def add(self, fields: Mapping[str, int]) -> None:
        """Add one layer's counters, keyed by :data:`sere.routing.FIELDS`."""
        self.steps += fields["steps"]
        self.before += fields["experts_before"]
        self.after += fields["experts_after"]
        self.slots += fields["slots"]
        self.rerouted += fields["rerouted"]

    def add_all(self, layers: Mapping[str, Mapping[str, int]]) -> None:
        """Add the counters of all layers, by layer name."""
        for name, fields in layers.items():
            self.add(fields)
            self.layers.setdefault(name, ExpertCount()).add(fields)

    @property
    def mean_before(self) -> float:
        """Distinct experts of the router's choice, mean per layer and step; NaN without steps."""
        return self.before / self.steps if self.steps else float("nan")

    @property
    def mean_after(self) -> float:
        """Distinct experts that were read, mean per layer and step; NaN without steps."""
        return self.after / self.steps if self.steps else float("nan")


@dataclass(frozen=True)
class Rerouting:
    """What to re-route with; ``policy`` None is the unmodified model.

    Attributes:
        artifact: Calibrated statistics, None where the policy needs none.
        policy: The policy.
        metric: Similarity metric; None for the artifact's default.

    """

    artifact: Artifact | None
    policy: Policy | None
    metric: str | None = None

    def on(self, model: Any, counting: bool = True) -> AbstractContextManager[Handle | None]:
        """Context manager that re-routes ``model``; gives the engine's handle, or None."""
        if self.policy is None:
            return nullcontext()
        return rerouted(model, self.artifact, self.policy, metric=self.metric, counting=counting)


def text_logits(
    model: Any,
    ids: Tensor,
    prompt: int,
    rerouting: Rerouting,
    mode: Mode,
    experts: ExpertCount,
    batch: int | None = None,
) -> Tensor:
    """Logits after every token but the prompt's and the last one.

    Args:
        model: A Transformers causal language model in evaluation mode.
        ids: Text, shape [B, L], int64.
        prompt: Tokens that are prefill: kept as routed, not scored, not counted.
        rerouting: The policy.
        mode: ``real`` decodes step by step with a cache; ``proxy`` runs one parallel forward.
        experts: Counters of the decoding steps are added here.
        batch: Sequences that decode together, for the proxy: each batch of so many rows is by itself;
            None for all of them.

    Returns:
        Shape [B, L - 1 - prompt, V]; entry j predicts token ``prompt + 1 + j``.

    """
    with torch.inference_mode():
        if mode == "proxy":
            return _parallel(model, ids, prompt, rerouting, experts, batch)
        return _stepwise(model, ids, prompt, rerouting, experts)


def _stepwise(model: Any, ids: Tensor, prompt: int, rerouting: Rerouting, experts: ExpertCount) -> Tensor:
    live = LiveBatch(model)
    with rerouting.on(model) as handle:
        live.prefill(ids[:, :prompt], torch.ones_like(ids[:, :prompt]))
        logits = [live.step(ids[:, t]) for t in range(prompt, ids.shape[1] - 1)]
        if handle is not None:
            experts.add_all(handle.counters().decode)
    return torch.stack(logits, dim=1)


def _parallel(
    model: Any, ids: Tensor, prompt: int, rerouting: Rerouting, experts: ExpertCount, batch: int | None
) -> Tensor:
    inputs = ids[:, :-1]
    if rerouting.policy is None:
        return model(input_ids=inputs, use_cache=False).logits[:, prompt:]  # type: ignore[no-any-return]
    artifact, policy, metric = rerouting.artifact, rerouting.policy, rerouting.metric
    with virtual_steps(
        model, artifact, policy, sequences=ids.shape[0], prompt=prompt, batch=batch, metric=metric
    ) as steps:
        logits: Tensor = model(input_ids=inputs, use_cache=False).logits[:, prompt:]
    experts.add_all(
        {name: dict(zip(FIELDS, total.tolist(), strict=True)) for name, total in steps.totals.items()}
    )
    return logits
