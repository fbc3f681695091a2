"""The router's scores of all experts, from its logits and what its object says of how it chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from sere.errors import EngineError
from sere.routing import Policy, RouterScores

Transform = Callable[[Tensor], Tensor]

_TRANSFORMS: Final[dict[str, Transform]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
    "sqrtsoftplus": lambda logits: F.softplus(logits).sqrt(),
}


@dataclass(frozen=True, eq=False)
class RouterScorer:
    """How one router scores.

    Attributes:
        transform: From logits to weighting scores, both of shape [T, C], float32.
        router: The router, whose selection bias is read where it lies, since loading may exchange it.

    """

    transform: Transform
    router: Any

    def __call__(self, logits: Tensor, num_experts: int) -> RouterScores:
        """Score all experts.

        Args:
            logits: Shape [T, C], any floating dtype; experts without weights of their own come last.
            num_experts: E.

        """
        weight = self.transform(logits.float())
        bias = getattr(self.router, "e_score_correction_bias", None)
        order = weight if bias is None else weight + bias.float()
        return RouterScores(order[:, :num_experts], weight[:, :num_experts])


def scorer_of(router: Any) -> RouterScorer | None:
    """Return how ``router`` scores; None if it chooses by a function of its own or a table of tokens."""
    own_way = ("custom_routing_function", "hash_indices_table", "_hash_indices_table", "bias_vl")
    if any(getattr(router, name, None) is not None for name in own_way):
        return None
    transform = _TRANSFORMS.get(str(getattr(router, "scoring_func", None)))
    return None if transform is None else RouterScorer(transform, router)


class Scored(Protocol):
    """A layer that may have a scorer."""

    name: str
    scorer: RouterScorer | None


def check_scores(policy: Policy, layers: Iterable[Scored]) -> None:
    """See that every layer's router can give what the policy needs.

    Raises:
        EngineError: If one cannot.

    """
    if "scores" not in policy.needs:
        return
    missing = [layer.name for layer in layers if layer.scorer is None]
    if missing:
        raise EngineError(
            f"policy {policy.name!r} needs the router's scores of all experts, and {len(missing)} layers, "
            f"{missing[0]} first, choose by a function of their own. Choose a policy that works on the "
            "routed slots alone, such as sere, top_k or tolerance."
        )
