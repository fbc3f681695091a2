"""What must not start does not, and says why."""

from __future__ import annotations

import re

import pytest

from tests.engines_vllm.conftest import records, run_module

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

EXPECTED = {
    "unknown key": r"EngineError: .*no key 'artefact'.*Did you mean 'artifact'",
    "no object": r"EngineError: .*must be an object, got None",
    "wrong type": r"PolicyError: .*top_s cannot be '2'; it takes a whole number",
    "unknown policy": r"PolicyError: .*'seer'.*Did you mean 'sere'",
    "no artifact": r"EngineError: .*none lies beside the weights.*sere calibrate",
    "missing artifact": r"ArtifactError: .*no folder with an artifact",
    "unknown metric": r"ArtifactError: .*cannot serve metric 'cka'.*frobenius",
    "artifact of another model": r"ArtifactError: .*their routing shapes differ",
    "dense model": r"EngineError: Qwen3ForCausalLM has no MoE layer",
}


@pytest.fixture(scope="module")
def refused(small_model):
    done = run_module("tests.engines_vllm.refusals", str(small_model))
    return {record["case"]: record["error"] for record in records(done)}


@pytest.mark.parametrize("case", EXPECTED)
def test_an_engine_does_not_start_with(refused, case):
    assert refused[case] is not None, "it started"
    assert re.match(EXPECTED[case], refused[case]), refused[case]
