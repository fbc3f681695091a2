"""Reading a server's series from outside."""

from __future__ import annotations

import math

import pytest

from sere.engines.vllm.scrape import parse, read_server
from sere.errors import EngineError


def sample(name, value, phase="decode", worker="0", layer="model.layers.0.mlp.experts"):
    return f'sere_{name}_total{{engine="0",layer="{layer}",phase="{phase}",worker="{worker}"}} {value}'


INFO = 'sere_policy_info{engine="0",policy="sere:top_s=1",worker="0"} 1.0'


def test_means_are_over_steps_with_decode_rows_of_the_first_worker():
    lines = [
        INFO,
        "# HELP sere_steps_total ...",
        "vllm:num_requests_running 3.0",
        *(sample("steps", 10.0), sample("steps", 2.0, "mixed"), sample("steps", 99.0, "prefill")),
        sample("steps", 10.0, worker="1"),
        *(sample("experts_before", 500.0), sample("experts_before", 100.0, "mixed")),
        sample("experts_after", 240.0),
        *(sample("slots", 1000.0), sample("slots_rerouted", 250.0), sample("decode_rows", 120.0)),
    ]
    report = parse("\n".join(lines))
    assert report.policies == {"0/0": "sere:top_s=1"}
    assert (report.layers, report.steps) == (1, 12)
    assert (report.distinct_before, report.distinct_after) == (50.0, 20.0)
    assert (report.rerouted, report.decode_rows) == (0.25, 10.0)


def test_a_server_that_has_served_nobody_has_no_means():
    report = parse(INFO)
    assert report.steps == 0
    assert math.isnan(report.distinct_after)


def test_a_server_without_the_plugin_is_named():
    with pytest.raises(EngineError, match=r"publishes no sere_\* series"):
        parse("vllm:num_requests_running 3.0")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://x", "no address of a server"),
        ("http://127.0.0.1:9", "no answer from"),
        ("http://a:b", "no answer"),
    ],
)
def test_a_wrong_address_is_named(url, message):
    with pytest.raises(EngineError, match=message):
        read_server(url, timeout=2)
