"""Decoding's routing in one parallel forward: virtual steps.

The t-th tokens of B sequences are what one decoding step of batch B would hold. So all steps of a
known text can run in a single forward pass, if the policy sees the rows of one t together and of
no other. Prompt tokens form one prefill group, as they do in real decoding.

Source: the evaluation of OEA, arXiv 2511.02237.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sere.artifact import Artifact
from sere.engines.transformers import MoELayer
from sere.engines.transformers.layers import parameter_names, survey
from sere.engines.transformers.rerouting import device_of
from sere.engines.transformers.scores import ScoreSource
from sere.engines.transformers.sources import with_scores
from sere.routing import DECODE, FIELDS, PREFILL, LayerStatistics, Policy, RouterScores, RoutingBatch, count


@dataclass
class VirtualSteps:
    """Re-routes forwards of [sequences, tokens] as if each column were a decoding step.

    Attributes:
        policy: What re-routes.
        sequences: B, rows of a virtual step.
        prompt: Leading tokens of every sequence that are prefill.
        totals: Counters of the virtual steps by layer name, each shape [len(FIELDS)], int64.

    """

    policy: Policy
    sequences: int
    prompt: int
    totals: dict[str, Tensor] = field(default_factory=dict)

    def reroute(
        self,
        layer: MoELayer,
        statistics: LayerStatistics,
        ids: Tensor,
        weights: Tensor,
        scores: RouterScores | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Rewrite one layer's routing, all steps of it.

        Args:
            layer: The layer.
            statistics: Its calibrated statistics.
            ids: Experts, shape [B * T, K] or [B, T, K]; token t of sequence b is row ``b * T + t``.
            weights: Routing weights of the same shape.
            scores: The router's scores of all experts, shape [B * T, E], if the policy needs them.

        """
        tokens = ids.shape[:-1].numel() // self.sequences
        grid_ids = ids.reshape(self.sequences, tokens, -1)
        grid_weights = weights.reshape(self.sequences, tokens, -1)
        new_ids, new_weights = torch.empty_like(grid_ids), torch.empty_like(grid_weights)
        columns = [slice(0, self.prompt)] if self.prompt else []
        columns += [slice(t, t + 1) for t in range(self.prompt, tokens)]
        total = torch.zeros(len(FIELDS), dtype=torch.long, device=ids.device)
        for column in columns:
            batch = self._batch(layer, grid_ids[:, column], grid_weights[:, column], column)
            if scores is not None:
                batch = replace(batch, scores=self._of_column(scores, column))
            routes = self.policy.route(batch, statistics)
            shape = grid_ids[:, column].shape
            if column.start >= self.prompt:
                total += count(batch, routes)
            new_ids[:, column] = routes.ids.view(shape)
            new_weights[:, column] = routes.weights.view(shape)
        self.totals[layer.name] = self.totals.get(layer.name, 0) + total
        return new_ids.view_as(ids), new_weights.view_as(weights)

    def _of_column(self, scores: RouterScores, column: slice) -> RouterScores:
        def cut(values: Tensor) -> Tensor:
            return values.view(self.sequences, -1, values.shape[1])[:, column].flatten(0, 1)

        return RouterScores(cut(scores.order), cut(scores.weight))

    def _batch(self, layer: MoELayer, ids: Tensor, weights: Tensor, column: slice) -> RoutingBatch:
        rows = ids.shape[0] * ids.shape[1]
        kind = DECODE if column.start >= self.prompt else PREFILL
        kinds = torch.full((rows,), kind, device=ids.device)
        return RoutingBatch(ids.reshape(rows, -1), weights.reshape(rows, -1), layer.num_experts, kinds)


@contextmanager
def virtual_steps(
    model: Any,
    artifact: Artifact | None,
    policy: Policy,
    *,
    sequences: int,
    prompt: int,
    metric: str | None = None,
) -> Iterator[VirtualSteps]:
    """Put hooks on every mixture-of-experts layer of ``model``; they come off whatever happens.

    Args:
        model: A Transformers model whose forwards will have shape [sequences, T], without padding.
        artifact: Calibrated statistics; None for policies that need none.
        policy: What re-routes.
        sequences: B.
        prompt: Tokens of prefill at the start of every sequence.
        metric: Similarity metric; None for the artifact's default.

    """
    steps = VirtualSteps(policy, sequences, prompt)
    hooks = []
    found = survey(model)
    sources: dict[str, ScoreSource] = {}
    if "scores" in policy.needs:
        found, sources = with_scores(model, found, policy.name)
    try:
        for layer in found.layers:
            statistics = LayerStatistics()
            if artifact is not None and policy.requires:
                # By number, as the engine does it: a wrapper puts a prefix before the module's path.
                name = artifact.layer_at(layer.index).name
                statistics = artifact.statistics(
                    name, requires=policy.requires, metric=metric, device=device_of(layer.module)
                )
            source = sources.get(layer.name)
            logits: list[Tensor] = []
            if source is not None:
                hooks.append(source.module.register_forward_hook(_keep(source, logits)))
            hook = _hook(steps, layer, statistics, source, logits)
            hooks.append(layer.module.register_forward_pre_hook(hook, with_kwargs=True))
        yield steps
    finally:
        for handle in hooks:
            handle.remove()


def _keep(source: ScoreSource, logits: list[Tensor]) -> Any:
    def hook(_module: Any, _args: tuple[Any, ...], output: Any) -> None:
        logits[:] = [source.pick(output)]

    return hook


def _hook(
    steps: VirtualSteps,
    layer: MoELayer,
    statistics: LayerStatistics,
    source: ScoreSource | None,
    logits: list[Tensor],
) -> Any:
    names = parameter_names(layer.module)[1:3]

    def hook(
        _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = {**dict(zip(names, args[1:3], strict=False)), **kwargs}
        scores = None if source is None else source.scores(logits.pop(), layer.num_experts)
        new = steps.reroute(layer, statistics, given[names[0]], given[names[1]], scores)
        # Each goes back the way it came: kernels behind the module may name their arguments differently.
        named = {name: value for name, value in zip(names, new, strict=True) if name in kwargs}
        return (*args[:1], *new[: max(len(args) - 1, 0)], *args[3:]), {**kwargs, **named}

    return hook
