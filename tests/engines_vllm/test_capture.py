"""Policies contain nothing that a CUDA graph cannot capture; seen without a GPU by the operations they call.

A graph replays kernels. Whatever copies a number from the host, or asks the device for one, fails while it is
captured. Such operations are named here; all policies run without them.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sere.engines.vllm.scores import scorer_of
from tests.engines_vllm.test_rerouting import IDS, WEIGHTS, layer

FORBIDDEN = {
    "aten.lift_fresh.default": "torch.tensor() copies from the host",
    "aten._local_scalar_dense.default": "the host waits for a value",
    "aten.nonzero.default": "the size of the result is known to the device only",
    "aten.masked_select.default": "the size of the result is known to the device only",
    "aten._unique2.default": "the size of the result is known to the device only",
    "aten.bincount.default": "the size of the result is known to the device only",
}
POLICIES = (
    "none",
    "sere:top_s=1",
    "sere:top_s=1,threshold=0.5,merge=true",
    "sere:top_s=1,merge=true,floor=0,phase=all",
    "top_k:k=1",
    "oea:top_s=1,floor=0",
    "xshare:size=2,floor=0",
)


class Watch(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def forbidden(policy):
    switch = torch.tensor(True)
    one = layer(policy, switch=switch, scorer=scorer_of(SimpleNamespace(scoring_func="softmax")))
    half = WEIGHTS.to(torch.bfloat16)  # counted by device operations, as on a GPU
    logits = torch.rand(3, 8)
    with Watch() as watch:
        one.route(IDS, half, torch.rand(3, 4), logits)
    assert len(watch.seen) > 10
    return {name: FORBIDDEN[name] for name in watch.seen if name in FORBIDDEN}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_can_be_captured(policy):
    assert forbidden(policy) == {}
