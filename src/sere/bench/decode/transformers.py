"""Decoding in Transformers: a known text, token by token, so that every variant does the same steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from sere.artifact import Artifact
from sere.bench.decode.config import DecodeConfig
from sere.bench.decode.record import Counted, Turn
from sere.evaluation.compare import plan
from sere.evaluation.record import LayerExperts
from sere.evaluation.speed import count_experts, decode_seconds
from sere.evaluation.stepwise import ExpertCount


class TransformersEngine:
    """One loaded model, re-routed in turns; timed without counting, counted in the warm-up.

    Args:
        model: A Transformers causal language model.
        artifact: Calibrated statistics; None if no policy needs any.
        variants: ``unmodified``, ``none``, then the policies.
        config: Settings.
        metric: Similarity metric; None for the artifact's default.

    Raises:
        ArtifactError: If the artifact belongs to another model, or cannot serve ``metric``.

    """

    def __init__(
        self,
        model: Any,
        artifact: Artifact | None,
        variants: Sequence[str],
        config: DecodeConfig,
        metric: str | None = None,
    ) -> None:
        from sere.engines.transformers import describe

        if artifact is not None:
            artifact.check_model(describe(model))
        self._model, self._config = model.eval(), config
        self._variants = plan(artifact, variants, metric)
        self._counted: dict[str, Counted | None] = {}

    def describe(self) -> Mapping[str, Any]:
        """As :meth:`Engine.describe`."""
        return {"model": self._model}

    def warm_up(self, ids: Tensor) -> None:
        """As :meth:`Engine.warm_up`; what is read is counted here, outside of the clock."""
        ids = ids.to(self._model.device)
        for name, rerouting in self._variants.items():
            count = count_experts(self._model, ids, rerouting, self._config.prompt_tokens)
            self._counted[name] = None if rerouting.policy is None else _counted(count)

    def time(self, variant: str, ids: Tensor, number: int) -> Turn:
        """As :meth:`Engine.time`; the mean of the timed steps."""
        config, ids = self._config, ids.to(self._model.device)
        rerouting = self._variants[variant]
        seconds = decode_seconds(self._model, ids, rerouting, config.prompt_tokens, config.warmup)
        return Turn(variant=variant, seconds=seconds / config.steps, experts=self._counted.get(variant))

    def close(self) -> None:
        """As :meth:`Engine.close`."""
        del self._model


def _counted(count: ExpertCount) -> Counted:
    return Counted(
        before=count.mean_before,
        after=count.mean_after,
        rerouted=count.rerouted / count.slots if count.slots else 0.0,
        layers=[
            LayerExperts(name=name, before=layer.mean_before, after=layer.mean_after)
            for name, layer in count.layers.items()
        ],
    )
