"""All steps at once are what each step is alone."""

from dataclasses import dataclass

import pytest
import torch

from sere.evaluation.grouped import Grouped
from sere.routing import (
    DECODE,
    RECIPES,
    LayerStatistics,
    Policy,
    RouterScores,
    RoutingBatch,
    count,
    make_policy,
)
from sere.routing.fill import Drop
from sere.routing.select import Everything
from sere.routing.weigh import Keep

EXPERTS, SLOTS, GROUPS, ROWS = 12, 4, 9, 5


def given(seed=0):
    generator = torch.Generator().manual_seed(seed)
    order = torch.randn(GROUPS, ROWS, EXPERTS, generator=generator)
    weights, ids = order.softmax(-1).topk(SLOTS)
    hidden = torch.randn(GROUPS, ROWS, 6, generator=generator)
    return {"ids": ids, "weights": weights, "order": order, "weight": order.softmax(-1), "hidden": hidden}


def statistics(seed=1):
    outputs = torch.randn(EXPERTS, 20, generator=torch.Generator().manual_seed(seed))
    gram = outputs @ outputs.T / 20
    length = outputs.norm(dim=1)
    count = torch.ones(EXPERTS, EXPERTS).fill_diagonal_(3.0)
    routed = {
        "routed_count": count,
        "routed_norm": 3 * length,
        "routed_cross": length[:, None] * gram * count,
        "routed_target": length[:, None] * gram.diagonal() * count,
        "routed_source": length[:, None] ** 3 * count,
        "norm_predictor": outputs[:, :7] / 2,
    }
    return LayerStatistics(similarity=gram.abs(), norm=length, gram=gram, **routed)


def one_by_one(policy, values, layer):
    out = []
    for group in range(GROUPS):
        own = {name: value[group] for name, value in values.items()}
        scores = RouterScores(own["order"], own["weight"])
        kinds = torch.full((ROWS,), DECODE)
        batch = RoutingBatch(own["ids"], own["weights"], EXPERTS, kinds, scores, own["hidden"])
        routes = policy.route(batch, layer)
        out.append((routes.ids, routes.weights, count(batch, routes)))
    return tuple(torch.stack(part) for part in zip(*out, strict=True))


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_routes_all_steps_at_once(name):
    policy = make_policy(name)
    grouped = Grouped(policy)
    ids, weights, counted = grouped.route(given(), statistics(), EXPERTS, DECODE)
    wanted = one_by_one(policy, given(), statistics())
    assert not grouped.one_by_one
    assert torch.equal(ids, wanted[0])
    torch.testing.assert_close(weights, wanted[1], rtol=1e-5, atol=1e-6)
    assert torch.equal(counted, wanted[2])


@dataclass(frozen=True)
class Looks(Everything):
    """Keeps all, and looks at a value on the way."""

    def __call__(self, batch, valid, eligible, resident, layer):
        assert float(batch.weights.sum()) > 0
        return super().__call__(batch, valid, eligible, resident, layer)

    def inert(self, top_k):
        return None


def test_a_policy_that_cannot_run_on_all_at_once_runs_step_by_step():
    grouped = Grouped(Policy("looks", Looks(), Drop(), Keep()))
    ids, weights, counted = grouped.route(given(), LayerStatistics(), EXPERTS, DECODE)
    assert grouped.one_by_one
    assert torch.equal(ids, given()["ids"])
    assert torch.equal(weights, given()["weights"])
    assert counted.shape == (GROUPS, 7)


def test_an_error_of_the_policy_itself_is_not_swallowed():
    grouped = Grouped(make_policy("sere", top_s=1))
    with pytest.raises(ValueError, match="similarity"):
        grouped.route(given(), LayerStatistics(), EXPERTS, DECODE)
