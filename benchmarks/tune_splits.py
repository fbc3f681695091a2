"""Whether tuning keeps its promise: over random splits, is the tolerance met on the half not searched.

    python benchmarks/tune_splits.py MODEL ARTIFACT [--tolerance 'kl<=0.02' --splits 20 --out FILE]

The texts are dealt into shares once; each split draws another half of them for the search, so a setting is
measured on a share once whatever the number of splits. What counts is the choice made on the searched half,
before the held-out half could take it back. For the front, the coarse settings of all searched recipes and
every setting that any split chose are measured on the split's held-out half. ``demo`` is the bundled model.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

import torch

from sere.artifact import Artifact
from sere.cli.loading import load
from sere.evaluation.files import check_file, write_text
from sere.evaluation.provenance import Provenance
from sere.evaluation.sweep import Evaluator, SweepConfig
from sere.evaluation.sweep.estimate import student
from sere.tuning import Tolerance, Traffic, tune
from sere.tuning.ladder import ladders

RECIPES = ("sere", "oea", "energy", "tolerance", "refit", "top_k")


@dataclass
class Outcome:
    """One split: what the search chose, and what the other half says of it."""

    seed: int
    policy: str | None
    experts: float = math.nan
    before: float = math.nan
    bound: float = math.nan
    search_loss: float = math.nan
    heldout_loss: float = math.nan
    met: bool = False
    beaten_by: tuple[str, ...] = ()
    surely_beaten_by: tuple[str, ...] = ()


def surely_less(left: list[float], right: list[float]) -> bool:
    """Whether ``left`` is less than ``right``, paired by share, at one-sided 95%."""
    differences = [a - b for a, b in zip(left, right, strict=True)]
    spread = student(len(differences) - 1, one_sided=True) * stdev(differences) / math.sqrt(len(differences))
    return fmean(differences) + spread < 0


def front(outcome: Outcome, evaluator: Evaluator, forms: list[str], size: int, tolerance: Tolerance,
          heldout: list[int]) -> None:  # fmt: skip
    """Name the settings that read and lose less on the held-out shares, and those that surely do both."""

    def seen(form: str) -> tuple[list[float], list[float]]:
        points = [evaluator.measure(form, size, share) for share in heldout]
        return [point.after for point in points], [tolerance.loss(point) for point in points]

    experts, losses = seen(outcome.policy or "none")
    beaten, surely = [], []
    for form in forms:
        read, lost = seen(form)
        if form != outcome.policy and fmean(read) < fmean(experts) and fmean(lost) < fmean(losses):
            beaten.append(form)
            surely += [form] * (surely_less(read, experts) and surely_less(lost, losses))
    outcome.beaten_by, outcome.surely_beaten_by = tuple(beaten), tuple(surely)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("artifact")
    parser.add_argument("--tolerance", default="kl<=0.02")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--shares", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--recipe", nargs="+", default=RECIPES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    if options.out is not None:
        check_file(options.out)
    torch.set_num_threads(1)
    model, tokenizer = load(options.model, dtype="float32")
    artifact = Artifact.from_pretrained(options.artifact)
    config = SweepConfig(seeds=options.shares, sequence_length=options.length)
    evaluator = Evaluator(model, tokenizer, artifact, config=config, cache=options.cache)
    size, tolerance = options.batch_size, Tolerance.parse(options.tolerance)
    provenance = Provenance.now(
        model, fingerprint=evaluator.record.fingerprint, artifact=artifact.hash,
        seeds={"first split": 0, "order of the texts": config.shuffle},
    )  # fmt: skip
    outcomes, halves = [], []
    for seed in range(options.splits):
        record = tune(
            evaluator, tolerance, Traffic.of([(size, 1.0)]), recipes=options.recipe,
            targets={"fast": 1.0}, seed=seed,
        )  # fmt: skip
        (point,) = record.points
        outcome = Outcome(seed, point.policy)
        if point.sizes:
            (found,) = point.sizes
            outcome.experts, outcome.before = found.after.mean, found.before.mean
            outcome.bound = math.nan if found.bound is None else found.bound
            outcome.search_loss, outcome.heldout_loss, outcome.met = (
                found.search_loss,
                found.loss.mean,
                found.met,
            )
        outcomes.append(outcome)
        halves.append(record.heldout)
        print(f"split {seed}: {point.policy} {outcome.heldout_loss:.4f} met {outcome.met}", flush=True)
    experts, top_k = max(evaluator.layers)
    coarse = [form for line in ladders(options.recipe, experts, top_k).values() for form in line]
    forms = list(dict.fromkeys([*coarse, *(each.policy for each in outcomes if each.policy is not None)]))
    for outcome, heldout in zip(outcomes, halves, strict=True):
        if outcome.policy is not None:
            front(outcome, evaluator, forms, size, tolerance, heldout)
    found = [each for each in outcomes if each.policy is not None]
    summary = {
        "splits": len(outcomes),
        "found": len(found),
        "met": sum(each.met for each in outcomes),
        "on_front": sum(not each.beaten_by for each in found),
        "on_front_within_intervals": sum(not each.surely_beaten_by for each in found),
        "experts": fmean(each.experts for each in found),
        "before": fmean(each.before for each in found),
        "heldout_loss": fmean(each.heldout_loss for each in found),
        "worst_heldout_loss": max(each.heldout_loss for each in found),
    }
    print(json.dumps(summary, indent=2))
    if options.out is not None:
        made = {
            "kind": "sere-tune-splits", "version": 1, "provenance": provenance.model_dump(mode="json"),
            "model": evaluator.record.model_dump(mode="json"), "artifact": artifact.hash,
            "tolerance": tolerance.text, "batch_size": size, "recipes": list(options.recipe),
            "config": asdict(config), "settings_on_the_front_test": len(forms), **summary,
            "outcomes": [asdict(each) for each in outcomes],
        }  # fmt: skip
        write_text(options.out, json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
