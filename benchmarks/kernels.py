"""What re-routing costs on the CPU: each backend beside the definition and beside the MoE layer.

    taskset -c 0 python benchmarks/kernels.py

Everything runs in turns in one process and one thread, timed by the thread's own processor time, so
that another program on the core does not count. The layer is Qwen3-30B-A3B's (128 experts of width
768, hidden 2048, top-8, random weights, Transformers' grouped_mm) with the routing that the policy gives it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sere.kernels import BackfillOptions, LayerTable, Options, backfill, definition, reroute, reroute_into
from sere.kernels.backfilling import definition as backfill_definition
from sere.routing import FIELDS, LayerStatistics, RouterScores

EXPERTS, TOP_K, SKEW = 128, 8, 0.85
POLICIES = {"S=2": Options(2), "S=1, rho 0.5": Options(1, 0.5), "S=2, merge": Options(2, merge=True)}


def routing(
    rows: int, generator: torch.Generator, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits = torch.randn(rows, EXPERTS, generator=generator) + SKEW * torch.randn(
        EXPERTS, generator=generator
    )
    scores = logits.softmax(-1)
    weights, ids = scores.topk(TOP_K)
    weights = (weights / weights.sum(1, keepdim=True)).to(dtype)
    return ids, weights, torch.zeros(rows, dtype=torch.int32), scores


def experts(dtype: torch.dtype) -> Any:
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    config = Qwen3MoeConfig(
        hidden_size=2048, num_experts=EXPERTS, num_experts_per_tok=TOP_K, moe_intermediate_size=768
    )
    config._experts_implementation = "grouped_mm"
    with torch.device("meta"):
        layer = Qwen3MoeExperts(config)
    layer = layer.to(dtype).to_empty(device="cpu")
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.02)
    return layer


def in_turns(work: dict[str, tuple[Callable[[], Any], int]], rounds: int) -> dict[str, float]:
    """Median over rounds of each one's microseconds a call."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, (call, repeats) in work.items():
            call()
            start = time.thread_time()
            for _ in range(repeats):
                call()
            times[name].append((time.thread_time() - start) / repeats * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def walk(table: LayerTable, active: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Look substitutes up in the order, the way that a GPU does, instead of comparing similarities."""
    order = table.order.numpy()[wanted, :EXPERTS]
    return order[np.arange(len(wanted)), active[order].argmax(1)]


def scan(table: LayerTable, active: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    columns = np.flatnonzero(active)
    return columns[table.similarity.numpy()[wanted[:, None], columns].argmax(1)]


def measure(rows: int, name: str, layer: Any, dtype: torch.dtype, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(rows)
    options = POLICIES[name]
    ids, weights, kinds, scores = routing(rows, generator, dtype)
    similarity = torch.rand(EXPERTS, EXPERTS, generator=generator)
    table = LayerTable.prepare(LayerStatistics((similarity + similarity.T) / 2), options.threshold)
    hidden = torch.randn(rows, 2048, generator=generator).to(dtype)
    new_ids, new_weights, counts = reroute(ids, weights, kinds, table, options)
    buffers = torch.empty_like(ids), torch.empty_like(weights), torch.zeros(3, len(FIELDS), dtype=torch.int64)
    flat = (
        table.similarity,
        table.order,
        options.top_s,
        options.threshold,
        options.floor,
        False,
        options.merge,
        True,
    )
    fill, every = BackfillOptions(options.top_s), RouterScores(scores, scores)
    active = np.zeros(EXPERTS, bool)
    active[new_ids.unique().numpy()] = True
    wanted = np.flatnonzero(~active)[:40]
    small = 50
    work: dict[str, tuple[Callable[[], Any], int]] = {
        "definition": (lambda: definition.reroute(ids, weights, kinds, table, options), small),
        "cpu": (lambda: reroute(ids, weights, kinds, table, options), small),
        "cpu, into": (lambda: reroute_into(ids, weights, kinds, table, options, *buffers), small),
        "cpu, torch.ops": (lambda: torch.ops.sere.reroute_fused(ids, weights, kinds, *flat), small),
        "backfill definition": (
            lambda: backfill_definition(ids, weights, kinds, every, None, fill),
            small,
        ),
        "backfill cpu": (lambda: backfill(ids, weights, kinds, every, None, fill), small),
        "look-up by order": (lambda: walk(table, active, wanted), small),
        "look-up by similarity": (lambda: scan(table, active, wanted), small),
        "layer": (lambda: layer(hidden, new_ids, new_weights), 2),
    }
    with torch.inference_mode():
        times = in_turns(work, rounds)
    shares = {key: value / times["layer"] for key, value in times.items()}
    speedups = {"cpu": times["definition"] / times["cpu"]}
    speedups["backfill cpu"] = times["backfill definition"] / times["backfill cpu"]
    distinct = counts[FIELDS.index("experts_before")].item(), counts[FIELDS.index("experts_after")].item()
    return {
        "rows": rows,
        "policy": name,
        "dtype": str(dtype),
        "distinct_experts": distinct,
        "microseconds": {key: round(value, 1) for key, value in times.items()},
        "percent_of_layer": {key: round(100 * value, 3) for key, value in shares.items()},
        "times_faster_than_definition": {key: round(value, 2) for key, value in speedups.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dtype = getattr(torch, chosen.dtype)
    layer = experts(dtype)
    for rows in chosen.rows:
        for name in POLICIES:
            print(json.dumps(measure(rows, name, layer, dtype, chosen.rounds), indent=1), flush=True)


if __name__ == "__main__":
    main()
