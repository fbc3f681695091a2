"""Nothing in the hooks waits for the device: all of it runs on tensors that have no values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sere.engines.transformers.hooks import Step, Steps, reroute, router_hook
from sere.engines.transformers.layers import MoELayer
from sere.engines.transformers.rerouting import Rerouting
from sere.engines.transformers.rows import Generation, row_kinds
from sere.engines.transformers.scores import PerExpert, ScoreSource, transforms
from sere.routing import LayerStatistics, parse_policy

META = torch.device("meta")


class StaticCache:
    """A cache whose length is a tensor on the device."""

    def get_seq_length(self):
        return torch.zeros((), dtype=torch.long, device=META)


def whole(*shape):
    return torch.zeros(shape, dtype=torch.long, device=META)


@pytest.mark.parametrize(
    "given",
    [
        {"input_ids": whole(4, 1), "cache": StaticCache(), "attention_mask": whole(4, 16)},
        {"input_ids": whole(4, 6), "attention_mask": whole(4, 1, 6, 16).bool(), "cache": StaticCache()},
        {"input_ids": whole(1, 24), "cu_seq_lens_q": whole(9), "cu_seq_lens_k": {"full_attention": whole(9)}},
    ],
    ids=["decode", "prefill", "packed"],
)
def test_row_kinds_need_no_values(given):
    kinds = row_kinds(given, Generation(decoding=True, ends=whole(2)))
    assert kinds.device == META
    assert kinds.shape == (given["input_ids"].numel(),)


@pytest.mark.parametrize("policy", ["none", "top_k:k=2", "sere:top_s=1,threshold=0.5,merge=true"])
def test_rerouting_and_counting_need_no_values(policy):
    layer = MoELayer("layer", 0, nn.Identity(), 16, 4)
    statistics = LayerStatistics(torch.zeros(16, 16, device=META))
    table = torch.zeros(3, 7, dtype=torch.int64, device=META)
    rerouting = Rerouting(layer, parse_policy(policy), statistics, table)
    weights = torch.zeros(24, 4, device=META)
    ids, new_weights = reroute(rerouting, Step(kinds=whole(24)), whole(24, 4), weights)
    assert ids.shape == new_weights.shape == (24, 4)


class Router(nn.Module):
    """A router with all that may take part in scores."""

    router_jitter_noise = 0.01

    def __init__(self):
        super().__init__()
        self.e_score_correction_bias = whole(18).float()


@pytest.mark.parametrize("transform", transforms(Router()))
@pytest.mark.parametrize("raw_order", [False, True])
def test_scores_of_all_experts_need_no_values(transform, raw_order):
    layer, router = MoELayer("layer", 0, nn.Identity(), 16, 4), Router()
    bias = PerExpert(router, "e_score_correction_bias")
    source = ScoreSource(router, 0, transform, bias, raw_order, bias)
    rerouting = Rerouting(layer, parse_policy("oea:top_s=1"), LayerStatistics(), None, source)
    steps = Steps()
    steps.current.kinds = whole(24)
    router_hook(rerouting, source, steps)(router, (), (torch.zeros(2, 12, 18, device=META), None))
    ids, weights = reroute(rerouting, steps.current, whole(24, 4), torch.zeros(24, 4, device=META))
    assert ids.shape == weights.shape == (24, 4)
