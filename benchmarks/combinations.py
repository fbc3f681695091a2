"""Combinations of selection, fill and weights at equal distinct experts; what led to the recipe ``refit``.

    python benchmarks/combinations.py MODEL ARTIFACT [--batch-size 16 --levels 12 14 16 18 20 --cache FILE]

KL by the parallel proxy on the held-out text, mean over the seeds' shares; between two settings its
logarithm is interpolated. ``demo`` is the bundled model.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from sere.artifact import Artifact
from sere.cli.loading import load
from sere.evaluation.sweep import Evaluator
from sere.routing import LayerStatistics, Policy, RoutingBatch, parse_policy
from sere.routing.backfill import Backfill
from sere.routing.budget import Budget, Tolerance
from sere.routing.refit import Refit
from sere.routing.scores import Energy, Share, SlotScore, needed
from sere.routing.select import UnionTopS
from sere.routing.weigh import Renormalise

SHARES = (0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02)


@dataclass(frozen=True)
class Removal(SlotScore):
    """Cost of a slot's removal once the others are refitted: ``w ** 2 / inverse(G)[k, k]`` in its row.

    Attributes:
        ridge: Added to the diagonal, relative to its mean.

    """

    ridge: float = 1e-2

    def slots(self, batch: RoutingBatch, voting: Tensor, layer: LayerStatistics) -> Tensor:
        """Invert K x K a row."""
        ids = batch.ids.clamp(0, batch.num_experts - 1).long()
        both = voting.unsqueeze(1) & voting.unsqueeze(2)
        square = needed(layer.gram, "gram", batch.num_experts)[ids.unsqueeze(2), ids.unsqueeze(1)]
        square = square.masked_fill(~both, 0)
        own = square.diagonal(dim1=1, dim2=2)
        mean = own.sum(1, keepdim=True) / voting.sum(1, keepdim=True).clamp(min=1)
        shift = torch.where(voting, self.ridge * mean + 1e-30, torch.ones_like(own))
        inverse = torch.linalg.inv(square + torch.diag_embed(shift)).diagonal(dim1=1, dim2=2)
        return (batch.weights.float() ** 2 / inverse).masked_fill(~voting, 0)

    @property
    def requires(self) -> frozenset[str]:
        """The second moments."""
        return frozenset({"gram"})


def families(top_k: int, experts: int) -> dict[str, list[Policy]]:
    slots = range(1, top_k)
    sizes = range(top_k, experts, 2)
    fixed = Share(Energy())

    def tolerance(name: str, weigh: object, top_s: int = 1, score: SlotScore | None = None) -> list[Policy]:
        made = [Tolerance(share, score or Energy(), top_s) for share in SHARES]
        return [Policy(f"{name}, {each.share}", each, Backfill(), weigh) for each in made]

    return {
        "`sere`": [parse_policy(f"sere:top_s={s}") for s in slots],
        "`oea`": [parse_policy(f"oea:top_s={s}") for s in slots],
        "`energy`": [parse_policy(f"energy:size={size}") for size in sizes],
        "`tolerance`": [parse_policy(f"tolerance:share={share}") for share in SHARES],
        "union, backfill, refit": [Policy(f"union {s}", UnionTopS(s), Backfill(), Refit()) for s in slots],
        "budget by shares of energy, backfill, refit": [
            Policy(f"budget {size}", Budget(size, fixed, 1), Backfill(), Refit()) for size in sizes
        ],
        "tolerance, backfill, renormalise": tolerance("renormalise", Renormalise()),
        "tolerance, backfill, refit to zero": tolerance("zero", Refit()),
        "the same by cost of removal": tolerance("removal", Refit(), score=Removal()),
        "the same, top_s=2": tolerance("two", Refit(), 2),
        "`refit`, ridge 0.1": tolerance("0.1", Refit(0.1, "router")),
        "`refit`, ridge 1": tolerance("1", Refit(1.0, "router")),
        "`refit`, ridge 3": tolerance("3", Refit(3.0, "router")),
        "`refit`, top_s=0": tolerance("none", Refit(1.0, "router"), 0),
    }


def at(points: list[tuple[float, float]], level: float) -> float | None:
    """Interpolate the logarithm of KL."""
    below = [point for point in points if point[0] <= level]
    above = [point for point in points if point[0] > level]
    if not below or not above:
        return None
    (x, low), (y, high) = below[-1], above[0]
    part = (level - x) / (y - x)
    return math.exp((1 - part) * math.log(low) + part * math.log(high))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("artifact")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--levels", type=float, nargs="+", default=[12, 14, 16, 18, 20])
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    model, tokenizer = load(options.model, dtype="float32")
    artifact = Artifact.from_pretrained(options.artifact)
    evaluator = Evaluator(model, tokenizer, artifact, cache=options.cache)
    experts, top_k = evaluator.layers[0]
    made = families(top_k, experts)
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(evaluator.config.seeds):  # all policies of a share before the next share
        for policies in made.values():
            for policy in policies:
                point = evaluator.measure(policy, options.batch_size, seed)
                found.setdefault(repr(policy), []).append((point.after, point.kl))
    print("| | " + " | ".join(f"{level:g}" for level in options.levels) + " |")
    print("| --- |" + " --- |" * len(options.levels))
    for name, policies in made.items():
        each = [found[repr(policy)] for policy in policies]
        points = sorted((fmean(x for x, _ in one), fmean(y for _, y in one)) for one in each)
        values = [at(points, level) for level in options.levels]
        cells = ["" if value is None else f"{value:.4f}" for value in values]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
