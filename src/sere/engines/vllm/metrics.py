"""Counters as ``sere_*`` series for Prometheus, and as one line in the server's log."""

from __future__ import annotations

import importlib
from typing import Any, Final

from sere.engines.vllm.counting import PHASES
from sere.routing import FIELDS

LABELS: Final = ("engine", "worker", "layer", "phase")

_HELP: Final = {
    "steps": "Steps of a layer that served at least one row",
    "decode_rows": "Rows that decoded",
    "prefill_rows": "Rows of prompts",
    "slots": "Routed slots of rows that are not padding",
    "rerouted": "Slots that were sent to another expert or emptied",
    "experts_before": "Distinct experts of the router's choice, summed over steps",
    "experts_after": "Distinct experts after the policy, summed over steps",
}
_NAMES: Final = {"rerouted": "slots_rerouted"}

Answers = list[list[dict[str, Any]]]
"""For every engine, for every worker: what ``sere_counters`` returned."""


class Publisher:
    """Turns the workers' totals into Prometheus counters; one for each engine client."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], dict[str, int]] = {}
        self._policies: dict[tuple[str, str], str] = {}

    def update(self, answers: Answers) -> None:
        """Publish, and log a line if there were steps since the last call."""
        counters, info = _series()
        line = dict.fromkeys(FIELDS, 0)
        policy = ""
        for engine, workers in enumerate(answers):
            for worker in workers:
                policy = worker["policy"]
                self._name((str(engine), str(worker["rank"])), policy, info)
                for layer, phases in worker["layers"].items():
                    for phase in PHASES:
                        grown = self._grown((str(engine), str(worker["rank"]), layer, phase), phases[phase])
                        for field, value in grown.items():
                            counters[field].labels(str(engine), str(worker["rank"]), layer, phase).inc(value)
                            # All workers of an engine route alike; one of them speaks for the line.
                            if worker is workers[0] and phase != "prefill":
                                line[field] += value
        if line["steps"]:
            from vllm.logger import init_logger

            init_logger("vllm.sere").info("%s", log_line(policy, line))

    def _name(self, worker: tuple[str, str], policy: str, info: Any) -> None:
        before = self._policies.get(worker)
        if before is not None and before != policy:
            info.labels(*worker, before).set(0)
        info.labels(*worker, policy).set(1)
        self._policies[worker] = policy

    def _grown(self, key: tuple[str, ...], now: dict[str, int]) -> dict[str, int]:
        before = self._seen.get(key, dict.fromkeys(FIELDS, 0))
        self._seen[key] = dict(now)
        if any(now[field] < before[field] for field in FIELDS):  # reset in between
            before = dict.fromkeys(FIELDS, 0)
        return {field: now[field] - before[field] for field in FIELDS}


def log_line(policy: str, totals: dict[str, int]) -> str:
    """One line about the layer steps with decode rows since the last one."""
    steps = totals["steps"]
    before, after = totals["experts_before"] / steps, totals["experts_after"] / steps
    share = totals["rerouted"] / max(totals["slots"], 1)
    return (
        f"sere: policy {policy}, distinct experts per layer and step {before:.1f} -> {after:.1f}, "
        f"{share:.0%} of slots re-routed, {totals['decode_rows'] / steps:.1f} decode rows"
    )


_made: dict[str, Any] = {}


def _series() -> tuple[dict[str, Any], Any]:
    """Return the process's series, made once: Prometheus refuses a second one of a name."""
    client = importlib.import_module("prometheus_client")
    if not _made:
        for field in FIELDS:
            _made[field] = client.Counter(f"sere_{_NAMES.get(field, field)}", _HELP[field], LABELS)
        _made["info"] = client.Gauge(
            "sere_policy_info",
            "1 for the policy that a worker reported",
            ("engine", "worker", "policy"),
            multiprocess_mode="mostrecent",
        )
    return {field: _made[field] for field in FIELDS}, _made["info"]
