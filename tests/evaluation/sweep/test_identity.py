"""What a point depends on, and what it does not."""

import torch

from sere.evaluation.sweep.identity import (
    code_hash,
    key_of,
    model_hash,
    sources,
    statistics_hash,
    tokens_hash,
)
from sere.routing import parse_policy
from tests.evaluation.conftest import tiny_model
from tests.inspection.made import made, random


def test_the_code_that_measures_counts_and_recipes_do_not():
    found = sources(["sere.evaluation.stepwise"])
    for name in (
        "evaluation.proxy",
        "evaluation.grouped",
        "routing.policy",
        "routing.counters",
        "routing.batch",
    ):
        assert len(found[f"sere.{name}"]) > 100
    assert not [name for name in found if "recipes" in name or "sweep" in name]


def test_only_the_parts_of_the_policy_itself_count():
    sere, oea, tolerance = (code_hash(parse_policy(text)) for text in ("sere:top_s=2", "oea", "tolerance"))
    assert len({sere, oea, tolerance}) == 3
    assert code_hash(parse_policy("sere:top_s=1,threshold=0.5")) == sere
    assert "sere.routing.refit" not in sources(["sere.routing.backfill"])
    assert "sere.routing.fill" in sources(["sere.routing.backfill"])  # imported by it


def test_models_of_other_weights_or_settings_differ():
    same, other, settings = tiny_model(), tiny_model(seed=1), tiny_model(rope_theta=123.0)
    assert model_hash(same) == model_hash(tiny_model())
    assert len({model_hash(each) for each in (same, other, settings)}) == 3
    elsewhere = tiny_model()
    elsewhere.config._name_or_path = "another/place"
    assert model_hash(elsewhere) == model_hash(same)


def test_token_ids_and_their_shape_count():
    ids = torch.arange(6)
    assert tokens_hash(ids.view(2, 3)) != tokens_hash(ids.view(3, 2))
    assert key_of(a=1, b=2) == key_of(b=2, a=1) != key_of(a=2, b=1)


def test_only_the_statistics_that_a_policy_requires_count():
    needs_norms = frozenset({"norm"})
    same, alike, heavier = (
        made(random(seed=0), norms=[1.0] * 12),
        made(random(seed=1), norms=[1.0] * 12),
        made(random(seed=0), norms=[2.0] * 12),
    )
    before = statistics_hash(same, needs_norms, None)
    assert statistics_hash(alike, needs_norms, None) == before
    assert statistics_hash(heavier, needs_norms, None) != before
    similarities = [statistics_hash(each, frozenset({"similarity"}), None) for each in (same, heavier, alike)]
    assert similarities[0] == similarities[1] != similarities[2]
