"""Tensor parallel 2, really run: both ranks must route every row alike, or they would add up two models."""

from __future__ import annotations

import os

import pytest

from tests.engines_vllm.conftest import records, run_module

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 1:
        pytest.skip("tensor parallel 2 on the CPU needs two cores")
    folder = tmp_path_factory.mktemp("parallel")
    bind = {"VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}|{cores[-1]}", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    built = run_module("tests.engines_vllm.build", str(folder), "qwen3_moe")
    assert built.returncode == 0, built.stderr[-3000:]
    return records(run_module("tests.engines_vllm.parallel", str(folder), **bind))[0]


def test_both_ranks_route_alike(record):
    (first, calls), (second, other_calls) = record["noted"]
    assert calls == other_calls > 20
    assert first == second


def test_both_ranks_count_alike(record):
    first, second = record["counters"]
    assert [first["rank"], second["rank"]] == [0, 1]
    assert first["layers"] == second["layers"]
    decode = first["layers"]["model.layers.0.mlp.experts"]["decode"]
    assert decode["rerouted"] > 0
    assert decode["experts_after"] < decode["experts_before"]


def test_a_switch_reaches_both_ranks(record):
    assert record["switched"] == ["off", "off"]
