"""The router's scores of all experts, from what one of its modules returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sere.routing import RouterScores

Transform = Callable[[Tensor], Tensor]
"""Logits of all experts, shape [T, C], any floating dtype, to weighting scores, [T, C], float32."""


def sparse_mixer(logits: Tensor, width: float) -> Tensor:
    """Weigh every expert against those below it that are within ``width`` of it, relatively.

    So each has the weight that it would carry if the experts above it were gone. Of equals, the first
    is above. This takes C x C numbers a row; the one family that routes so has 16 experts. What is
    within is judged in the logits' own dtype, as the router does.

    Source: SparseMixer (arXiv 2409.12136), as PhiMoE runs it outside of training.
    """
    mine, other = logits.unsqueeze(2), logits.unsqueeze(1)
    place = torch.arange(logits.shape[1], device=logits.device)
    below = (other < mine) | ((other == mine) & (place.view(1, -1) >= place.view(-1, 1)))
    near = below & ~((mine - other) / torch.maximum(other.abs(), mine) > width)
    return 1 / ((other.float() - mine.float()).exp() * near).sum(2)


def _softmax(logits: Tensor) -> Tensor:
    return logits.float().softmax(-1)


def _sigmoid(logits: Tensor) -> Tensor:
    return logits.float().sigmoid()


def _identity(scores: Tensor) -> Tensor:
    return scores.float()


def _softplus(logits: Tensor) -> Tensor:
    return F.softplus(logits.float())


def _sqrt_softplus(logits: Tensor) -> Tensor:
    return _softplus(logits).sqrt()


_TRANSFORMS: Final[tuple[Transform, ...]] = (
    _softmax,
    _sigmoid,
    _identity,
    _sqrt_softplus,
    _softplus,
)


def transforms(block: nn.Module) -> tuple[Transform, ...]:
    """List the transforms that a router in ``block`` may be using.

    A softmax over the chosen slots only is covered by the one over all experts: a factor a row apart,
    they are the same.
    """
    noises = (getattr(module, "router_jitter_noise", None) for module in block.modules())
    mixers = [partial(sparse_mixer, width=2 * noise) for noise in noises if isinstance(noise, float)]
    return (*_TRANSFORMS, *mixers[:1])


@dataclass(frozen=True, eq=False)
class PerExpert:
    """A tensor with one number an expert, such as a selection bias, looked up where it lies.

    Attributes:
        owner: Module that has it.
        name: Its name there.

    """

    owner: nn.Module
    name: str

    def read(self) -> Tensor:
        """Its values, shape [C], float32."""
        value: Tensor = getattr(self.owner, self.name)
        return value.detach().reshape(-1).float()


@dataclass(frozen=True, eq=False)
class ScoreSource:
    """How to get one layer's scores of all experts.

    Attributes:
        module: Module that returns the logits, or scores.
        place: Their place in what it returns, or None if it returns them alone.
        transform: From these to weighting scores.
        scale: Factor of each expert's weight, or None.
        raw_order: Whether experts are chosen by logits instead of weighting scores.
        bias: What is added to each expert for the choice alone, or None.

    """

    module: nn.Module
    place: int | None
    transform: Transform
    scale: PerExpert | None = None
    raw_order: bool = False
    bias: PerExpert | None = None

    def pick(self, output: Any) -> Tensor:
        """Take the logits out of what the module returned."""
        logits: Tensor = output if self.place is None else output[self.place]
        return logits

    def scores(self, logits: Tensor, num_experts: int | None = None) -> RouterScores:
        """Order and weight of the first ``num_experts`` experts, both of shape [T, E], float32.

        Args:
            logits: What :meth:`pick` gave, shape [..., C]; C may count experts without weights too.
            num_experts: E, or None for all C.

        """
        rows = logits.flatten(0, -2)
        weight = self.transform(rows)
        order = rows.float() if self.raw_order else weight
        if self.bias is not None:
            order = order + self.bias.read()
        if self.scale is not None:
            weight = weight * self.scale.read()
        return RouterScores(order[:, :num_experts], weight[:, :num_experts])
