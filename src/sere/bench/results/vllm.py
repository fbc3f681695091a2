"""Result files of ``vllm bench serve --save-result`` (vLLM 0.32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sere.bench.results.load import Latency, Load


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether a JSON document is one."""
    return "request_throughput" in raw and "endpoint_type" in raw


def read(raw: Mapping[str, Any]) -> list[Load]:
    """Read its one load; KeyError, TypeError or ValueError where it is damaged."""
    return [
        Load(
            tool="vllm",
            rate=float(raw["request_rate"]),
            completed=raw["completed"],
            failed=raw.get("failed", 0),
            seconds=raw["duration"],
            requests_per_second=raw["request_throughput"],
            tokens_per_second=raw["output_throughput"],
            goodput=raw.get("request_goodput"),
            input_tokens=raw.get("total_input_tokens"),
            output_tokens=raw.get("total_output_tokens"),
            ttft=_latency(raw, "ttft"),
            tpot=_latency(raw, "tpot"),
            itl=_latency(raw, "itl"),
            e2el=_latency(raw, "e2el"),
            concurrent=raw.get("max_concurrent_requests"),
        )
    ]


def _latency(raw: Mapping[str, Any], name: str) -> Latency | None:
    if f"mean_{name}_ms" not in raw:
        return None
    return Latency(
        mean=raw[f"mean_{name}_ms"], median=raw[f"median_{name}_ms"], p99=raw.get(f"p99_{name}_ms")
    )
