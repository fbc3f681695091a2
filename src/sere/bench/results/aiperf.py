"""Exports of AIPerf (``profile_export_aiperf.json``, schema 1.x).

Its ``inter_token_latency`` is a mean of each request, which is called TPOT here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sere.bench.results.load import Latency, Load

UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "sec": 1e3, "s": 1e3}
"""Milliseconds of a unit."""


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether a JSON document is one."""
    found = raw.get("request_throughput")
    return isinstance(found, dict) and "unit" in found and "input_config" in raw


def read(raw: Mapping[str, Any]) -> list[Load]:
    """Read its one load; KeyError, TypeError or ValueError where it is damaged.

    Raises:
        ValueError: If the run did not come to its end.

    """
    if raw.get("was_cancelled") or raw.get("is_complete") is False:
        raise ValueError("the run was cancelled or not completed")
    answered = int(_value(raw, "request_count") or 0)
    per_second = _value(raw, "request_throughput") or 0.0
    seconds = _milliseconds(raw["benchmark_duration"], "avg") / 1e3 if raw.get("benchmark_duration") else None
    return [
        Load(
            tool="aiperf",
            rate=_rate(raw["input_config"]),
            completed=answered,
            failed=int(_value(raw, "error_request_count") or 0),
            seconds=seconds if seconds is not None else answered / per_second,
            requests_per_second=per_second,
            tokens_per_second=_value(raw, "output_token_throughput") or 0.0,
            goodput=_value(raw, "goodput"),
            input_tokens=_count(raw, "total_isl"),
            output_tokens=_count(raw, "total_osl"),
            ttft=_latency(raw, "time_to_first_token"),
            tpot=_latency(raw, "inter_token_latency"),
            e2el=_latency(raw, "request_latency"),
        )
    ]


def _value(raw: Mapping[str, Any], name: str) -> float | None:
    found = raw.get(name)
    return None if found is None or found.get("avg") is None else float(found["avg"])


def _count(raw: Mapping[str, Any], name: str) -> int | None:
    value = _value(raw, name)
    return None if value is None else int(value)


def _milliseconds(found: Mapping[str, Any], name: str) -> float:
    return float(found[name]) * UNITS[found["unit"]]


def _latency(raw: Mapping[str, Any], name: str) -> Latency | None:
    found = raw.get(name)
    if found is None or found.get("avg") is None:
        return None
    return Latency(
        mean=_milliseconds(found, "avg"),
        median=_milliseconds(found, "p50"),
        p99=_milliseconds(found, "p99") if found.get("p99") is not None else None,
    )


def _rate(config: Any) -> float | None:
    """Find the request rate in the settings of the run, which nest differently from version to version."""
    if isinstance(config, dict):
        for name, value in config.items():
            if name in ("request_rate", "rate") and isinstance(value, int | float):
                return float(value)
            if not name.startswith("warmup") and (found := _rate(value)) is not None:
                return found
    if isinstance(config, list):
        return next((found for each in config if (found := _rate(each)) is not None), None)
    return None
