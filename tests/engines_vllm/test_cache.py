"""Code that vLLM compiled and kept must not run under settings that it was not compiled for.

The real engine is asked in ``test_families``.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sere.engines.vllm.loading import check_active
from sere.engines.vllm.plugin import KEY
from sere.errors import EngineError


@pytest.mark.vllm
def test_the_hash_of_a_configuration_knows_the_key():
    from vllm.config import VllmConfig

    settings = ({}, {KEY: {}}, {KEY: {"policy": "none"}}, {KEY: {"top_s": 1}}, {KEY: {"top_s": 2}})
    assert len({VllmConfig(additional_config=extra).compute_hash() for extra in settings}) == len(settings)


def engine(dummies, *calls):
    reroutings = [SimpleNamespace(name=f"layer{index}", calls=count) for index, count in enumerate(calls)]
    return SimpleNamespace(rows=SimpleNamespace(dummies=dummies), reroutings=reroutings)


def test_a_warm_up_that_did_not_pass_through_a_layers_policy_ends_the_start():
    check_active(engine(1, 1, 2))
    check_active(engine(0, 0, 0))  # no warm-up, nothing known
    with pytest.raises(EngineError, match="1 of 2 MoE layers ran without the policy, layer1 first"):
        check_active(engine(1, 1, 0))
