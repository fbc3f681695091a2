"""A policy that keeps everything and remembers what it was handed, and ways to judge that."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sere.routing import Policy, RouterScores, RoutingBatch
from sere.routing.batch import expert_mask
from sere.routing.fill import Drop
from sere.routing.part import Part
from sere.routing.select import Selection
from sere.routing.weigh import Keep


@dataclass(frozen=True)
class Witness(Part):
    """Selects all that is routed."""

    wanted: frozenset[str]
    batches: list[RoutingBatch] = field(default_factory=list)

    def __call__(self, batch, valid, eligible, resident, layer):
        self.batches.append(batch)
        return Selection(expert_mask(batch, valid), valid)

    @property
    def needs(self):
        return self.wanted

    def inert(self, top_k):
        return None


def witness(*needs: str) -> tuple[Policy, list[RoutingBatch]]:
    """A policy that needs ``needs`` and changes nothing, and the list of what it sees."""
    select = Witness(frozenset(needs))
    return Policy("witness", select, Drop(), Keep()), select.batches


def unbalance(model: nn.Module) -> nn.Module:
    """Set selection biases and scales of single experts apart; they are all zero or one at first."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, tensor in (*model.named_buffers(), *model.named_parameters()):
            if name.endswith(("e_score_correction_bias", "expert_bias", "balancing_biases")):
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)
            elif name.endswith("per_expert_scale"):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return model


def chosen(batch: RoutingBatch) -> list[set[int]]:
    """The routed experts of every row."""
    pairs = zip(batch.ids.tolist(), batch.valid().tolist(), strict=True)
    return [{expert for expert, valid in zip(*pair, strict=True) if valid} for pair in pairs]


def best(scores: RouterScores, batch: RoutingBatch) -> list[set[int]]:
    """As many experts of every row as it has routed ones, the highest by order."""
    counts = [len(row) for row in chosen(batch)]
    ranked = scores.order.argsort(descending=True).tolist()
    return [set(row[:count]) for row, count in zip(ranked, counts, strict=True)]


def share_error(batch: RoutingBatch) -> Tensor:
    """Greatest difference between a slot's share of its row's weights and of its row's scores."""
    valid = batch.valid()
    scored = batch.scores.weight.gather(1, batch.ids.clamp(max=batch.num_experts - 1)).masked_fill(~valid, 0)
    given = batch.weights.float().masked_fill(~valid, 0)
    scored, given = (part / part.sum(1, keepdim=True).clamp(min=1e-30) for part in (scored, given))
    return (scored - given).abs().max()
