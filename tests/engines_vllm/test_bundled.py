"""The bundled model answers under vLLM as it does under Transformers."""

from __future__ import annotations

import pytest

from tests.engines_vllm.conftest import records, run_module

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifact")
    return records(run_module("tests.engines_vllm.bundled", str(folder)))[0]


def test_greedy_answers_under_none_are_those_of_transformers(record):
    # Two engines' float32 sums differ in the last bits, which may tip a tie in one answer of a hundred.
    assert record["same"]["none"] >= 0.99 * record["count"]
    assert abs(record["right"]["vllm none"] - record["right"]["transformers none"]) <= 0.01 * record["count"]
    assert record["right"]["transformers none"] > 0.5 * record["count"]  # else there is nothing to lose


def test_accuracy_under_sere_is_that_of_the_transformers_engine(record):
    # A tie that tips changes what the whole wave decodes from then on.
    assert record["same"]["sere"] >= 0.9 * record["count"]
    assert abs(record["right"]["vllm sere"] - record["right"]["transformers sere"]) <= 0.03 * record["count"]
    assert record["right"]["transformers sere"] < record["right"]["transformers none"]


def test_both_engines_read_about_as_many_experts(record):
    assert record["distinct"]["vllm"] == pytest.approx(record["distinct"]["transformers"], rel=0.02)
