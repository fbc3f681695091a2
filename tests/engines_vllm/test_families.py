"""Every family is served without the plugin, under ``none`` and under ``sere``, from small random weights."""

from __future__ import annotations

import pytest

from tests.engines_vllm.conftest import records, run_module
from tests.engines_vllm.families import FAMILIES

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

COMPILED = ("qwen3_moe", "deepseek_v3")
"""Families that are also compiled: one whose experts are all routed, one with grouped, biased routing and
shared experts. The others differ from these in the router only, which runs before the plugin."""

CASES = [("eager", name) for name in FAMILIES] + [("compiled", name) for name in COMPILED]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("families")


def drive(folder, mode, *names):
    """Records of families, by name; vLLM keeps compiled code in a folder beside."""
    kept = {"VLLM_CACHE_ROOT": str(folder / "cache")}
    run = run_module("tests.engines_vllm.driver", str(folder / "models"), mode, *names, **kept)
    return {record["family"]: record for record in records(run)}


@pytest.fixture(scope="module")
def served(folder):
    """Records of all families of a mode, run once in one process."""
    done: dict[str, dict[str, dict]] = {}

    def of(mode: str) -> dict[str, dict]:
        if mode not in done:
            done[mode] = drive(folder, mode, *(name for kind, name in CASES if kind == mode))
        return done[mode]

    return of


@pytest.fixture
def record(served, request):
    mode, name = request.param
    found = served(mode)[name]
    assert "error" not in found, found.get("trace")
    return found


each = pytest.mark.parametrize("record", CASES, indirect=True, ids="-".join)


@each
def test_none_gives_exactly_the_tokens_of_vllm_without_the_plugin(record):
    assert record["none_equals_plain"]
    assert record["none"]["rerouted"] == 0
    assert record["none"]["experts_before"] == record["none"]["experts_after"]
    assert record["distinct_tokens"] > 20  # a model that always says the same would prove nothing


@each
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


@each
def test_counters_equal_the_oracle(record):
    for field in ("steps", "rerouted", "experts_before", "experts_after"):
        assert record["sere"][field] == record["oracle"][field]


@each
def test_prompt_rows_are_kept_and_every_row_is_counted_once(record):
    layers = len(record["layers"])
    assert record["prefill"]["rerouted"] == 0
    assert record["sere"]["decode_rows"] == 12 * 9 * layers  # the first of 10 tokens comes from the prompt
    assert record["sere"]["prefill_rows"] + record["prefill"]["prefill_rows"] == 191 * layers


@each
def test_policies_get_the_scores_that_the_router_chose_by(record):
    assert record["oracle"]["scores_weigh"]
    # Grouped routers leave better experts out, those of the groups that they did not choose.
    assert record["oracle"]["scores_order"] or record["family"].startswith("deepseek")
    if record["backfilled"] is not None:
        assert record["backfilled"]["rerouted"] > 0
        assert record["backfilled"]["experts_after"] < record["backfilled"]["experts_before"]


@each
def test_re_routing_reaches_the_answers(record):
    assert not record["sere_equals_plain"]


def test_code_that_vllm_compiled_and_kept_is_not_mixed_up_whichever_ran_first(served, folder):
    first = served("compiled")["qwen3_moe"]  # without the plugin, then with it
    assert list((folder / "cache").rglob("model")), "vLLM kept no compiled code: this test proves nothing"
    second = drive(folder, "again", "qwen3_moe")["qwen3_moe"]  # a new process, the other way round
    assert "error" not in second, second.get("trace")
    assert second["plain tokens"] == first["plain tokens"]
    assert second["sere tokens"] == first["sere tokens"] != first["plain tokens"]
    assert second["rerouted"] == first["sere"]["rerouted"] > 0
