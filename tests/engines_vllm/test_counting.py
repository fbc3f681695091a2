"""Counting on the host is counting."""

from __future__ import annotations

import pytest
import torch

from sere.engines.vllm.counting import PHASES, add_step, new_table, read
from sere.routing import FIELDS, LayerStatistics, RoutingBatch, count, parse_policy

POLICIES = ("none", "sere:top_s=1,floor=0", "sere:top_s=1,merge=true,phase=all", "top_k:k=2")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(12))
def test_a_step_counts_the_same_on_the_host_as_by_the_definition(policy, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = 1 + seed % 7
    ids = torch.rand(rows, 16, generator=generator).argsort(1)[:, :4].int() - int(seed % 3 == 0)
    weights = torch.rand(rows, 4, generator=generator) * (torch.rand(rows, 4, generator=generator) > 0.2)
    weights[0, 0] = float("nan") if seed % 4 == 0 else 0.5
    kinds = torch.randint(0, 3, (rows,), generator=generator, dtype=torch.int32)
    batch = RoutingBatch(ids, weights, 15, kinds)
    layer = LayerStatistics(torch.rand(15, 15, generator=generator))
    routes = parse_policy(policy).route(batch, layer, redirect_padding=True)
    table = new_table(torch.device("cpu"))
    add_step(table, batch, routes)
    got = read(table)
    expected = dict(zip(FIELDS, count(batch, routes).tolist(), strict=True))
    if not expected["steps"]:
        assert table.sum() == 0
        return
    phase = {(True, False): "decode", (False, True): "prefill", (True, True): "mixed"}[
        expected["decode_rows"] > 0, expected["prefill_rows"] > 0
    ]
    assert got[phase] == expected
    assert all(sum(got[other].values()) == 0 for other in PHASES if other != phase)


def test_counters_do_not_wrap_after_billions_of_steps():
    table = new_table(torch.device("cpu"))
    table.fill_(2**40)
    batch = RoutingBatch(torch.tensor([[0, 1]]), torch.tensor([[0.6, 0.4]]), 4, torch.tensor([0]))
    for routes in (parse_policy("none").route(batch, LayerStatistics()), None):
        add_step(table, batch, routes)
    assert read(table)["decode"] == dict.fromkeys(FIELDS, 2**40) | {
        name: 2**40 + by for name, by in zip(FIELDS, (2, 2, 0, 4, 0, 4, 4), strict=True)
    }
