"""Steps of unusual shape, and several engines in one process, on a real engine."""

from __future__ import annotations

import pytest

from tests.engines_vllm.conftest import records, run_module

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

LAYERS = 2


@pytest.fixture(scope="module")
def record(small_model):
    return records(run_module("tests.engines_vllm.steps", str(small_model)))[0]


CASES = ("preempted", "uncached", "cached", "drafts", "reloaded")


@pytest.mark.parametrize("case", CASES)
def test_routes_and_counters_are_those_of_the_oracle(record, case):
    got = record[case]
    assert got["oracle"]["wrong"] == 0
    assert got["oracle"]["rerouted"] > 0
    for field in ("steps", "rerouted", "experts_before", "experts_after"):
        assert got["counted"][field] == got["oracle"][field]
    assert got["prefill"]["rerouted"] == 0


def rows(case):
    prefill = case["counted"]["prefill_rows"] + case["prefill"]["prefill_rows"]
    return case["counted"]["decode_rows"] // LAYERS, prefill // LAYERS


def test_what_a_preempted_request_computes_again_is_prefill(record):
    decode, prefill = rows(record["preempted"])
    assert prefill > 191  # the prompts
    # 12 requests of 40 tokens, the first of them from the prompt; a preempted one resumes from prefill rows.
    assert 12 * 39 - 24 < decode < 12 * 39


def test_a_prefix_found_in_the_cache_is_not_counted_again(record):
    assert rows(record["uncached"]) == (3 * 9, 3 * 64)
    assert rows(record["cached"]) == (3 * 9, 3 * 32)
    assert record["uncached"]["tokens"][0] != record["uncached"]["tokens"][1]


def test_drafts_that_are_verified_are_decode_rows(record):
    assert record["drafts"]["widest"] > 12  # requests
    decode, prefill = rows(record["drafts"])
    assert decode > 12 * 9
    assert prefill <= 191


def test_none_gives_the_tokens_of_an_engine_without_the_plugin(record):
    assert record["none"] == record["plain"]  # under preemption
    assert record["none drafts"] == record["short"]
    assert record["preempted"]["tokens"] != record["plain"]


def test_engines_in_one_process_do_not_touch_each_other(record):
    # Served after a second engine with the plugin was started, and re-routed, in the same process.
    assert record["none again"] == record["short"]


def test_merging_a_rows_slots_of_one_expert_gives_the_same_answers(record):
    # Sums are rounded elsewhere, which may tip a tie.
    same = sum(one == other for one, other in zip(record["apart"], record["merged"], strict=True))
    assert same >= 11
    assert record["apart"] != record["short"]
