"""What needs a GPU: steps replayed from captured graphs, under both of vLLM's model runners.

Self-contained: ``python -m pytest -m gpu tests/engines_vllm`` in an environment with vLLM, Transformers and a
GPU. No Python runs in a replayed step, so exact counts show that row kinds are read anew in every replay.
"""

from __future__ import annotations

import pytest
import torch

from tests.engines_vllm.conftest import records, run_module

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: steps replayed from CUDA graphs"),
]

MODES = ("EAGER", "PIECEWISE", "FULL", "FULL_AND_PIECEWISE")
CASES = [(mode, runner) for runner in ("0", "1") for mode in MODES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gpu")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-runner-V{int(case[1]) + 1}")
def record(folder, request):
    mode, runner = request.param
    done = run_module("tests.engines_vllm.gpu", str(folder), mode, VLLM_USE_V2_MODEL_RUNNER=runner)
    return {"mode": mode, **records(done)[0]}


def test_none_gives_the_tokens_of_vllm_without_the_plugin(record):
    assert record["none"] == record["plain"]
    assert record["none counted"]["rerouted"] == 0
    assert len({token for row in record["plain"] for token in row}) > 20


def test_every_row_is_counted_once_also_in_replayed_steps(record):
    counted = record["counted"]
    assert counted["decode_rows"] == record["none counted"]["decode_rows"] == 12 * 9 * 2
    assert counted["prefill_rows"] + record["prefill counted"]["prefill_rows"] == 191 * 2
    assert counted["slots"] == 4 * (counted["decode_rows"] + counted["prefill_rows"])


def test_sere_re_routes_decode_rows_only_and_reads_fewer_experts(record):
    counted = record["counted"]
    assert counted["rerouted"] > 50
    assert counted["experts_after"] < 0.9 * counted["experts_before"]
    assert record["prefill counted"]["rerouted"] == 0
    assert record["sere"] != record["plain"]


def test_the_off_switch_works_in_captured_graphs_and_another_policy_is_refused(record):
    assert record["off"] == record["plain"]
    assert record["off counted"]["rerouted"] == 0 < record["off counted"]["steps"]
    if record["mode"] == "EAGER":
        assert record["refusal"] is None
    else:
        assert "only 'on' and 'off' can be" in record["refusal"]
