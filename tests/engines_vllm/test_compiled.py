"""Compiled code re-routes as eager code does, and is kept apart from code without the plugin."""

from __future__ import annotations

import pytest

from tests.engines_vllm.checks import (
    test_counters_equal_the_oracle,  # noqa: F401
    test_none_gives_exactly_the_tokens_of_vllm_without_the_plugin,  # noqa: F401
    test_policies_get_the_scores_that_the_router_chose_by,  # noqa: F401
    test_prompt_rows_are_kept_and_every_row_is_counted_once,  # noqa: F401
    test_re_routing_reaches_the_answers,  # noqa: F401
    test_sere_re_routes_as_the_oracle_does_from_the_recorded_routing,  # noqa: F401
)
from tests.engines_vllm.conftest import records, run_module

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

COMPILED = ("qwen3_moe", "deepseek_v3")
"""One family whose experts are all routed, one with grouped, biased routing and shared experts. The others
differ from these in the router only, which runs before the plugin."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


def drive(folder, mode, *names):
    """Records of families, by name; vLLM keeps compiled code in a folder beside."""
    kept = {"VLLM_CACHE_ROOT": str(folder / "cache")}
    run = run_module("tests.engines_vllm.driver", str(folder / "models"), mode, *names, **kept)
    return {record["family"]: record for record in records(run)}


@pytest.fixture(scope="module")
def served(folder):
    """Records of the compiled families, run in one process."""
    return drive(folder, "compiled", *COMPILED)


@pytest.fixture(params=COMPILED)
def record(served, request):
    found = served[request.param]
    assert "error" not in found, found.get("trace")
    return found


def test_code_that_vllm_compiled_and_kept_is_not_mixed_up_whichever_ran_first(served, folder):
    first = served["qwen3_moe"]  # without the plugin, then with it
    assert list((folder / "cache").rglob("model")), "vLLM kept no compiled code: this test proves nothing"
    second = drive(folder, "again", "qwen3_moe")["qwen3_moe"]  # a new process, the other way round
    assert "error" not in second, second.get("trace")
    assert second["plain tokens"] == first["plain tokens"]
    assert second["sere tokens"] == first["sere tokens"] != first["plain tokens"]
    assert second["rerouted"] == first["sere"]["rerouted"] > 0
