"""A recipe made ready for its kernel gives what the recipe gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sere.errors import PolicyError, RoutingError
from sere.kernels import BackfillOptions, Fused, FusedBackfill, fuse
from sere.routing import FIELDS, LayerStatistics, Policy, count, parse_policy
from sere.routing.backfill import Backfill
from sere.routing.select import UnionTopS
from sere.routing.weigh import Keep
from tests.routing.scored import scored_cases

RECIPES = (
    "oea:top_s=1",
    "oea:top_s=2,floor=0,phase=all",
    "xshare:size=6",
    "moe_spec:size=5,floor=0",
    "des_vote:size=5",
    "energy:size=5,top_s=1",
    "lynx:size=4,floor=1",
)
CPU = torch.device("cpu")


def ready(policy, batch, layer):
    return fuse(policy, layer, batch.num_experts, batch.top_k, CPU)


@pytest.mark.parametrize("recipe", RECIPES)
@settings(max_examples=40, deadline=None)
@given(case=scored_cases(), half=st.booleans())
def test_a_recipe_that_backfills_gives_the_policys_bits_and_counters(recipe, case, half):
    _, batch, layer = case
    weights = batch.weights.bfloat16() if half else batch.weights
    batch = type(batch)(batch.ids, weights, batch.num_experts, batch.kinds, batch.scores)
    policy = parse_policy(recipe)
    counts = torch.zeros(3, len(FIELDS), dtype=torch.int64)
    got = ready(policy, batch, layer).route(batch.ids, weights, batch.kinds, counts, batch.scores)
    inert = policy.inert(batch.top_k) is not None
    routes = policy.route(batch, layer, redirect_padding=not inert)
    assert torch.equal(got[0], routes.ids)
    assert torch.equal(got[1], routes.weights)
    assert counts.sum(0).tolist() == count(batch, routes).tolist()


def test_options_are_those_of_the_policy():
    assert BackfillOptions.of(parse_policy("oea:top_s=3,phase=all")) == BackfillOptions(3, everyone=True)
    assert BackfillOptions.of(parse_policy("xshare:size=9,floor=2")) == BackfillOptions(1, 2, 9)
    kept = Policy("own", UnionTopS(2), Backfill(), Keep())
    assert BackfillOptions.of(kept) == BackfillOptions(2, renormalise=False)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (parse_policy("refit"), "does not select and then backfill"),
        (parse_policy("sere"), "MostSimilar"),
        (Policy("own", UnionTopS(2), Backfill(), Keep(), merge=True), "not merged"),
    ],
    ids=("refit", "sere", "merged"),
)
def test_other_policies_are_refused_with_the_reason(policy, reason):
    with pytest.raises(PolicyError, match=reason):
        BackfillOptions.of(policy)


def test_each_family_has_its_kernel_and_other_policies_have_none():
    layer = LayerStatistics(torch.eye(4), torch.ones(4), torch.eye(4))
    kinds = {name: fuse(parse_policy(name), layer, 4, 2, CPU) for name in ("sere", "oea", "fold", "none")}
    assert isinstance(kinds["sere"], Fused)
    assert isinstance(kinds["oea"], FusedBackfill)
    assert kinds["fold"] is kinds["none"] is None
    assert not kinds["sere"].fits(kinds["oea"])
    assert not kinds["oea"].fits(kinds["sere"])


def test_without_scores_it_is_refused_by_name():
    fused = fuse(parse_policy("oea:top_s=1"), LayerStatistics(), 4, 2, CPU)
    with pytest.raises(RoutingError, match="scores of all experts"):
        fused.route(torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2), None, None)
