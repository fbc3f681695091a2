"""What holds of every family's record, served eagerly or compiled; imported by the tests that serve them."""

from __future__ import annotations


def test_none_gives_exactly_the_tokens_of_vllm_without_the_plugin(record):
    assert record["none_equals_plain"]
    assert record["none"]["rerouted"] == 0
    assert record["none"]["experts_before"] == record["none"]["experts_after"]
    assert record["distinct_tokens"] > 20  # a model that always says the same would prove nothing


def test_sere_re_routes_as_the_oracle_does_from_the_recorded_routing(record):
    oracle = record["oracle"]
    assert oracle["wrong"] == 0
    assert oracle["steps"] == 9 * len(record["layers"]) + oracle["mixed"]
    # Chunked prefill puts prompts and decoding into one step; vLLM has none for MLA on the CPU.
    assert (oracle["mixed"] > 0) != record["family"].startswith("deepseek")
    assert oracle["rerouted"] > 50
    assert oracle["experts_after"] < oracle["experts_before"]
    assert oracle["kept_weights"]
    assert oracle["fresh"]


def test_counters_equal_the_oracle(record):
    for field in ("steps", "rerouted", "experts_before", "experts_after"):
        assert record["sere"][field] == record["oracle"][field]


def test_prompt_rows_are_kept_and_every_row_is_counted_once(record):
    layers = len(record["layers"])
    assert record["prefill"]["rerouted"] == 0
    assert record["sere"]["decode_rows"] == 12 * 9 * layers  # the first of 10 tokens comes from the prompt
    assert record["sere"]["prefill_rows"] + record["prefill"]["prefill_rows"] == 191 * layers


def test_policies_get_the_scores_that_the_router_chose_by(record):
    assert record["oracle"]["scores_weigh"]
    # Grouped routers leave better experts out, those of the groups that they did not choose.
    assert record["oracle"]["scores_order"] or record["family"].startswith("deepseek")
    if record["backfilled"] is not None:
        assert record["backfilled"]["rerouted"] > 0
        assert record["backfilled"]["experts_after"] < record["backfilled"]["experts_before"]


def test_re_routing_reaches_the_answers(record):
    assert not record["sere_equals_plain"]
