"""Decoding's routing in one parallel forward: virtual steps.

The t-th tokens of B sequences are what one decoding step of batch B would hold. So all steps of a
known text can run in a single forward pass, if the policy sees the rows of one t together and of
no other. Prompt tokens form one prefill group, as they do in real decoding.

Source: the evaluation of OEA, arXiv 2511.02237.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sere.artifact import Artifact
from sere.engines.transformers import MoELayer
from sere.engines.transformers.layers import parameter_names, survey
from sere.engines.transformers.rerouting import device_of
from sere.engines.transformers.scores import ScoreSource
from sere.engines.transformers.sources import with_scores
from sere.errors import DataError
from sere.evaluation.grouped import Grouped
from sere.routing import DECODE, PREFILL, LayerStatistics, Policy, RouterScores


@dataclass
class VirtualSteps:
    """Re-routes forwards of [sequences, tokens] as if each column of a batch were a decoding step.

    Attributes:
        policy: What re-routes.
        sequences: Rows of the forward.
        batch: B, sequences of a batch: the first B rows are one, the next B another, and so on.
        prompt: Leading tokens of every sequence that are prefill.
        totals: Counters of the virtual steps by layer name, each shape [len(FIELDS)], int64.

    """

    policy: Policy
    sequences: int
    batch: int
    prompt: int
    totals: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch < 1 or self.sequences % self.batch:
            raise DataError(
                f"{self.sequences} sequences cannot be split into batches of {self.batch}. Give a multiple."
            )
        self._grouped: dict[Policy, Grouped] = {}

    def reroute(
        self,
        layer: MoELayer,
        statistics: LayerStatistics,
        ids: Tensor,
        weights: Tensor,
        scores: RouterScores | None = None,
        hidden: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Rewrite one layer's routing, all steps of all batches.

        Args:
            layer: The layer.
            statistics: Its calibrated statistics.
            ids: Experts, shape [N * T, K] or [N, T, K]; token t of sequence n is row ``n * T + t``.
            weights: Routing weights of the same shape.
            scores: The router's scores of all experts, shape [N * T, E], if the policy needs them.
            hidden: The layer's input, shape [..., H] of the same rows, if the policy needs it.

        """
        given = {"ids": ids, "weights": weights}
        if scores is not None:
            given |= {"order": scores.order, "weight": scores.weight}
        if hidden is not None:
            given["hidden"] = hidden
        grid = {name: self._grid(value) for name, value in given.items()}
        policy = self.policy.of_layer(layer.index)
        grouped = self._grouped.setdefault(policy, Grouped(policy))
        new_ids, new_weights = (grid[name].clone() for name in ("ids", "weights"))
        batches, rows, tokens, slots = new_ids.shape
        if self.prompt:
            # A batch's prompts are one prefill step.
            start = {name: value[:, :, : self.prompt].flatten(1, 2) for name, value in grid.items()}
            routed = grouped.route(start, statistics, layer.num_experts, PREFILL)
            shape = (batches, rows, -1, slots)
            new_ids[:, :, : self.prompt] = routed[0].view(shape)
            new_weights[:, :, : self.prompt] = routed[1].view(shape)
        columns = {
            name: value[:, :, self.prompt :].transpose(1, 2).flatten(0, 1) for name, value in grid.items()
        }
        routed = grouped.route(columns, statistics, layer.num_experts, DECODE)
        shape = (batches, tokens - self.prompt, rows, slots)
        new_ids[:, :, self.prompt :] = routed[0].view(shape).transpose(1, 2)
        new_weights[:, :, self.prompt :] = routed[1].view(shape).transpose(1, 2)
        self.totals[layer.name] = self.totals.get(layer.name, 0) + routed[2].sum(0)
        return new_ids.view_as(ids), new_weights.view_as(weights)

    def _grid(self, values: Tensor) -> Tensor:
        """View rows as [batches, B, T, ...]."""
        return values.reshape(self.sequences // self.batch, self.batch, -1, values.shape[-1])


@contextmanager
def virtual_steps(
    model: Any,
    artifact: Artifact | None,
    policy: Policy,
    *,
    sequences: int,
    prompt: int,
    batch: int | None = None,
    metric: str | None = None,
) -> Iterator[VirtualSteps]:
    """Put hooks on every mixture-of-experts layer of ``model``; they come off whatever happens.

    Args:
        model: A Transformers model whose forwards will have shape [sequences, T], without padding.
        artifact: Calibrated statistics; None for policies that need none.
        policy: What re-routes.
        sequences: Rows of a forward.
        prompt: Tokens of prefill at the start of every sequence.
        batch: B, sequences that decode together; None for all of them.
        metric: Similarity metric; None for the artifact's default.

    Raises:
        DataError: If ``sequences`` is no multiple of ``batch``.

    """
    steps = VirtualSteps(policy, sequences, sequences if batch is None else batch, prompt)
    hooks = []
    found = survey(model)
    sources: dict[str, ScoreSource] = {}
    if "scores" in policy.needs:
        found, sources = with_scores(model, found, policy.name)
    try:
        for layer in found.layers:
            statistics = LayerStatistics()
            requires = policy.of_layer(layer.index).requires
            if artifact is not None and requires:
                # By number, as the engine does it: a wrapper puts a prefix before the module's path.
                name = artifact.layer_at(layer.index).name
                statistics = artifact.statistics(
                    name, requires=requires, metric=metric, device=device_of(layer.module)
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
    hidden, *names = parameter_names(layer.module)[:3]

    def hook(
        _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = {**dict(zip((hidden, *names), args, strict=False)), **kwargs}
        inputs = given[hidden] if "hidden" in steps.policy.needs else None
        scores = None if source is None else source.scores(logits.pop(), layer.num_experts)
        new = steps.reroute(layer, statistics, given[names[0]], given[names[1]], scores, inputs)
        # Each goes back the way it came: kernels behind the module may name their arguments differently.
        named = {name: value for name, value in zip(names, new, strict=True) if name in kwargs}
        return (*args[:1], *new[: max(len(args) - 1, 0)], *args[3:]), {**kwargs, **named}

    return hook
