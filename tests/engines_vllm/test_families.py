"""Every family is served eagerly: without the plugin, under ``none`` and under ``sere``; random weights."""

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
from tests.engines_vllm.families import FAMILIES

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Records of all families, run in one process."""
    folder = str(tmp_path_factory.mktemp("families"))
    run = run_module("tests.engines_vllm.driver", folder, "eager", *FAMILIES)
    return {record["family"]: record for record in records(run)}


@pytest.fixture(params=FAMILIES)
def record(served, request):
    found = served[request.param]
    assert "error" not in found, found.get("trace")
    return found
