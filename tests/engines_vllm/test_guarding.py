"""The guard ``auto`` on a real engine."""

from __future__ import annotations

import pytest

from tests.engines_vllm.conftest import records, run_module

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def record(small_model):
    return records(run_module("tests.engines_vllm.guarding", str(small_model)))[0]


def test_steps_that_do_not_pay_on_this_device_stay_as_routed(record):
    few = record["few"]
    assert few["decode_rows"] > 0
    assert few["rerouted"] == 0
    assert few["guarded"][0] >= 5  # every step of decoding


def test_larger_steps_are_re_routed(record):
    assert record["many"]["rerouted"] > 0
    assert record["many"]["experts_after"] < record["many"]["experts_before"]


def test_a_policy_that_was_not_measured_cannot_be_switched_to(record):
    assert "'top_k:k=1' has none" in record["refused"]
