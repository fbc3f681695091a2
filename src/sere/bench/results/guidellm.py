"""Reports of GuideLLM (``benchmarks.json``, 0.8): one load for each rate that it drove.

Its ``inter_token_latency_ms`` is a mean of each request, which is called TPOT here; its own
``time_per_output_token_ms`` counts the first token in and has no counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sere.bench.results.load import Latency, Load

_SECOND_MS = 1000.0


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether a JSON document is one."""
    runs = raw.get("benchmarks")
    return isinstance(runs, list) and bool(runs) and "scheduler_metrics" in runs[0]


def read(raw: Mapping[str, Any]) -> list[Load]:
    """Read its loads; KeyError, TypeError or ValueError where it is damaged."""
    return [_load(run) for run in raw["benchmarks"]]


def _load(run: Mapping[str, Any]) -> Load:
    metrics = run["metrics"]
    totals = metrics["request_totals"]
    goodput = metrics.get("request_goodput")
    return Load(
        tool="guidellm",
        rate=_rate(run),
        completed=totals["successful"],
        failed=totals["errored"],  # incomplete ones were cut off by the end of the measurement
        seconds=run["duration"],
        requests_per_second=metrics["requests_per_second"]["successful"]["mean"],
        tokens_per_second=metrics["output_tokens_per_second"]["successful"]["mean"],
        goodput=None if goodput is None else goodput["successful"]["mean"],
        input_tokens=int(metrics["prompt_token_count"]["successful"]["total_sum"]),
        output_tokens=int(metrics["output_token_count"]["successful"]["total_sum"]),
        ttft=_latency(metrics["time_to_first_token_ms"]),
        tpot=_latency(metrics["inter_token_latency_ms"]),
        e2el=_latency(metrics["request_latency"], _SECOND_MS),
        concurrent=metrics["request_concurrency"]["successful"]["max"],
    )


def _rate(run: Mapping[str, Any]) -> float | None:
    """Rate of a constant or Poisson strategy; infinite for one that sends all at once."""
    strategy = run["config"].get("strategy") or {}
    if strategy.get("type_") == "throughput":
        return float("inf")
    rate = strategy.get("rate")
    return None if rate is None else float(rate)


def _latency(found: Mapping[str, Any], unit: float = 1.0) -> Latency | None:
    values = found.get("successful")
    if not values or not values["count"]:
        return None
    return Latency(
        mean=unit * values["mean"], median=unit * values["median"], p99=unit * values["percentiles"]["p99"]
    )
