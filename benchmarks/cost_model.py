"""Predicted against measured speed-up, at batch sizes that the cost model never saw.

    python benchmarks/cost_model.py --threads 1 --out docs/results/cost_model.json

The model is one block of Qwen3-30B-A3B's shape with random weights and skewed routing (see
``sere.bench.blocks``); a small model would fit into the processor's caches. ``sere profile``'s own code fits
the cost model to steps of forced routing, so no policy has a part in the fit, and counts experts and overhead
of each policy at the profiled batch sizes. Then the policies decode at other batch sizes, in turns with the
unmodified model: each round gives one ratio.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from sere.bench import pinned
from sere.bench.blocks import artifact_for, build, random_text
from sere.evaluation.compare import UNMODIFIED
from sere.evaluation.speed import measure
from sere.evaluation.stepwise import Rerouting
from sere.profiling import ProfileConfig, profile
from sere.profiling.check import CheckedSpeed, CostCheck, checked
from sere.routing import parse_policy

POLICIES = ("sere:top_s=2", "sere:top_s=1", "oea:top_s=2", "top_k:k=4")
PROMPT, WARMUP = 16, 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--profiled", type=int, nargs="+", default=[1, 4, 16, 48], help="sizes of the fit")
    parser.add_argument("--held-out", type=int, nargs="+", default=[2, 8, 32], help="others, to check")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--layers", type=int, default=1, help="blocks of 2.5 GB")
    parser.add_argument("--steps", type=int, default=8, help="timed steps of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scale", type=int, default=1, help="divides the widths, to try the script")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def check(options: argparse.Namespace) -> CostCheck:
    started = time.monotonic()
    seen = sorted(set(options.profiled) & set(options.held_out))
    if seen:
        raise SystemExit(f"batch sizes {seen} are profiled and held out. Give each to one of the two.")
    model = build(options.layers, scale=options.scale)
    artifact = artifact_for(model)
    sizes = tuple(sorted(options.profiled))
    config = ProfileConfig(batch_sizes=sizes, expected_tokens=8, prompt_tokens=PROMPT)
    text = random_text(max(config.batch_sizes), PROMPT + config.expected_tokens, seed=1)
    policies = ["none", *options.policies]
    fitted = profile(model, text, artifact, policies, config, progress=print)
    variants = {UNMODIFIED: Rerouting(None, None)}
    variants |= {text: Rerouting(artifact, parse_policy(text)) for text in policies}
    results: list[CheckedSpeed] = []
    for rows in sorted(options.held_out):
        print(f"decoding {rows} rows", flush=True)
        ids = random_text(rows, PROMPT + WARMUP + options.steps, seed=2)
        speeds = measure(model, ids, variants, prompt=PROMPT, rounds=options.rounds, warmup=WARMUP)
        results += [checked(fitted, fitted.cost.of(name), rows, speeds[name]) for name in policies]
    return CostCheck(
        stand_in=f"{options.layers} block(s) of Qwen3-30B-A3B's shape with random weights",
        profile=fitted,
        rounds=options.rounds,
        steps=options.steps,
        results=results,
        seconds=time.monotonic() - started,
    )


def show(record: CostCheck) -> None:
    print("\npolicy, rows, experts before -> after, predicted, from counted experts, measured (range), error")
    for each in record.results:
        print(
            f"  {each.policy:14} {each.rows:3}  {each.before:5.1f} -> {each.after:5.1f}  "
            f"{each.predicted:.2f}  {each.counted:.2f}  "
            f"{each.measured:.2f} ({each.low:.2f} to {each.high:.2f})  {each.error:+.0%}"
        )
    print(
        f"half of the predictions are within {record.error:.0%}, all within {record.worst:.0%}; "
        f"{record.sided} of {len(record.results)} say rightly whether it pays"
    )


if __name__ == "__main__":
    options = arguments()
    with pinned(options.threads):
        record = check(options)
    show(record)
    if options.out is not None:
        record.save(options.out)
