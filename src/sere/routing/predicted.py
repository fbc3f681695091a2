"""Score by what a slot is predicted to add to this very token, not to the average one."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from sere.errors import RoutingError
from sere.routing.batch import RoutingBatch
from sere.routing.layer import LayerStatistics
from sere.routing.scores import SlotScore, needed

_FARTHEST = 40.0
"""Greatest absolute log-norm: its square is still a float32."""


@dataclass(frozen=True)
class PredictedEnergy(SlotScore):
    """``(w_tu * exp(a_u . x_t + b_u)) ** 2``: the squared error of leaving the slot out, as predicted.

    Source: BASE, arXiv 2609.36222: the removal error without cross terms, with a log-norm that is linear in
    the layer's input x.

    """

    def slots(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Weights times predicted norms, squared."""
        predictor = needed(layer.norm_predictor, "norm_predictor", batch.num_experts)
        hidden = batch.hidden
        if hidden is None or hidden.shape[-1] != predictor.shape[1] - 1:
            width = "none" if hidden is None else f"width {hidden.shape[-1]}"
            raise RoutingError(
                f"this policy needs the layer's input of width {predictor.shape[1] - 1}, as calibrated, and "
                f"got {width}. Choose a policy that works on the routed slots alone, such as sere."
            )
        logs = F.linear(hidden.float(), predictor[:, :-1], predictor[:, -1]).clamp(-_FARTHEST, _FARTHEST)
        safe = batch.ids.clamp(0, batch.num_experts - 1).long()
        energy = batch.weights.float().square() * (2 * logs.gather(1, safe)).exp()
        return energy.masked_fill(~voting, 0)

    @property
    def requires(self) -> frozenset[str]:
        """The linear functions."""
        return frozenset({"norm_predictor"})

    @property
    def needs(self) -> frozenset[str]:
        """The layer's input."""
        return frozenset({"hidden"})
