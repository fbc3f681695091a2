"""A real server over HTTP: nothing is lost, counters are true, it switches and stops cleanly."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from sere.engines.vllm.scrape import read_server
from tests.engines_vllm.driver import POLICY
from tests.engines_vllm.server import OPTIONS, drive, serving

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

LAYER = "model.layers.0.mlp.experts"


@pytest.fixture(scope="module")
def server(small_model, tmp_path_factory):
    extra = {**POLICY, "artifact": str(small_model / "artifact")}
    log = tmp_path_factory.mktemp("log") / "server.log"
    with serving(small_model / "model", extra, log, *OPTIONS, VLLM_SERVER_DEV_MODE="1") as running:
        yield running


def settled(server, name="decode_rows"):
    """A counter once two readings in a row agree."""
    before = None
    for _ in range(20):
        now = server.total(name, LAYER, "decode", "mixed")
        if now == before:
            return now
        before = now
        time.sleep(1.5)
    raise AssertionError("the counters did not settle")


def test_the_banner_is_in_the_log(server):
    text = server.log.read_text()
    assert "sere: re-routing 2 MoE layers" in text
    assert "sere: policy sere:top_s=1,threshold=0.3,floor=5" in text


def test_every_token_of_32_concurrent_clients_is_counted_once(server):
    asyncio.run(drive(server.url, 4, 2, cancel=0))
    before = settled(server)
    load = asyncio.run(drive(server.url, 200, 32, cancel=0, seed=1))
    assert load.failed == []
    assert load.finished == 200
    # The first token of an answer comes from the prompt's rows.
    assert settled(server) - before == load.tokens - load.finished
    assert server.total("experts_after", LAYER, "decode") < server.total("experts_before", LAYER, "decode")
    assert server.total("slots_rerouted", LAYER, "prefill") == 0


def thousand(server):
    """Drive 1,000 requests, a tenth of them cancelled, after a warm-up; return the memory that grew."""
    asyncio.run(drive(server.url, 200, 32, cancel=0.1, seed=2))
    before = server.memory()
    load = asyncio.run(drive(server.url, 1000, 32, cancel=0.1, seed=3))
    assert load.failed == []
    assert load.finished + load.cancelled == 1000
    assert load.cancelled > 50
    return server.memory() - before


def test_a_thousand_requests_some_cancelled_lose_nothing_and_leak_nothing(server, small_model, tmp_path):
    grown = thousand(server)
    assert "sere: policy" in server.log.read_text().split("Application startup complete")[-1]
    # vLLM's own memory grows for its first few thousand requests, so it is the measure.
    with serving(small_model / "model", None, tmp_path / "log", *OPTIONS) as plain:
        own = thousand(plain)
        assert plain.series() == {}
    limit = own + 0.02 * server.memory()
    if grown >= limit:  # a heap may grow by a step once; a leak grows by as much again
        grown = thousand(server)
    assert grown < limit


def test_the_policy_of_a_running_server_is_switched_over_http(server):
    assert server.call("sere_switch", "none") == ["none"]
    before = settled(server, "slots_rerouted")
    asyncio.run(drive(server.url, 20, 8, cancel=0, seed=4))
    assert settled(server, "slots_rerouted") == before
    assert server.call("sere_switch", "sere:top_s=1,floor=0") == ["sere:top_s=1,floor=0"]
    asyncio.run(drive(server.url, 20, 8, cancel=0, seed=4))
    assert settled(server, "slots_rerouted") > before
    report = read_server(server.url)
    assert report.policies == {"0/0": "sere:top_s=1,floor=0"}
    assert report.layers == 2
    assert report.distinct_after < report.distinct_before


def test_the_server_stops_cleanly(server):
    # The last test of this server. While it stops, vLLM may log that its own engine has gone before it.
    assert "Traceback" not in server.log.read_text()
    assert server.stop(signal.SIGINT) == 0
