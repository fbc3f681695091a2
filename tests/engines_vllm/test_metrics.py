"""Counters on their way to Prometheus and to the log."""

from __future__ import annotations

import pytest

from sere.engines.vllm.banner import uniform_distinct
from sere.engines.vllm.counting import PHASES
from sere.engines.vllm.metrics import Publisher, log_line
from sere.routing import FIELDS


def answer(rank: int, steps: int, policy: str = "sere:top_s=2") -> dict:
    value = dict.fromkeys(FIELDS, 0) | {
        "steps": steps,
        "experts_before": 10 * steps,
        "experts_after": 4 * steps,
    }
    empty = dict.fromkeys(FIELDS, 0)
    layers = {"model.layers.0": {phase: value if phase == "decode" else empty for phase in PHASES}}
    return {"rank": rank, "policy": policy, "layers": layers}


def test_the_log_line_says_what_a_step_reads():
    totals = {"steps": 10, "decode_rows": 160, "experts_before": 500, "experts_after": 150}
    totals |= {"slots": 1280, "rerouted": 640, "prefill_rows": 0}
    assert log_line("sere:top_s=1", totals) == (
        "sere: policy sere:top_s=1, distinct experts per layer and step 50.0 -> 15.0, "
        "50% of slots re-routed, 16.0 decode rows"
    )


@pytest.mark.vllm
def test_series_hold_the_workers_totals_also_after_a_reset():
    from prometheus_client import REGISTRY

    def read(name, worker="0"):
        labels = {"engine": "0", "worker": worker, "layer": "model.layers.0", "phase": "decode"}
        return REGISTRY.get_sample_value(name, labels)

    publisher = Publisher()
    publisher.update([[answer(0, 3), answer(1, 3)]])
    publisher.update([[answer(0, 5), answer(1, 5)]])
    assert read("sere_steps_total") == read("sere_steps_total", "1") == 5
    assert read("sere_experts_before_total") == 50
    assert read("sere_experts_after_total") == 20
    assert read("sere_slots_rerouted_total") == 0
    publisher.update([[answer(0, 2), answer(1, 2)]])  # the workers were reset and went on
    assert read("sere_steps_total") == 7


@pytest.mark.vllm
def test_only_the_policy_that_is_served_is_marked():
    from prometheus_client import REGISTRY

    def read(policy):
        labels = {"engine": "0", "worker": "7", "policy": policy}
        return REGISTRY.get_sample_value("sere_policy_info", labels)

    publisher = Publisher()
    publisher.update([[answer(7, 0, "none")]])
    assert read("none") == 1
    publisher.update([[answer(7, 0, "off")]])
    assert (read("none"), read("off")) == (0, 1)


def test_uniform_routing_names_as_many_experts_as_drawing_does():
    assert uniform_distinct(128, 8, 1) == pytest.approx(8)
    assert uniform_distinct(128, 8, 16) == pytest.approx(128 * (1 - (120 / 128) ** 16))
    assert uniform_distinct(4, 4, 9) == pytest.approx(4)
