"""Names and parameters of recipes."""

from __future__ import annotations

import pytest

from sere.errors import PolicyError
from sere.routing import RECIPES, make_policy, parse_policy


def test_the_short_form_builds_the_same_policy():
    assert parse_policy("sere:top_s=1,threshold=0.5,floor=none,phase=all,merge=true") == make_policy(
        "sere", top_s=1, threshold=0.5, floor=None, phase="all", merge=True
    )
    assert parse_policy(" none ") == make_policy("none")
    assert parse_policy("sere : top_s = 1 , ") == make_policy("sere", top_s=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seer", "Did you mean 'sere'"),
        ("sere:treshold=1", "Did you mean 'threshold'"),
        ("sere:top_s", "key=value"),
        ("sere:top_s=1,top_s=2", "given twice"),
        ("sere:top_s=1.5", "a whole number"),
        ("sere:top_s=true", "a whole number"),
        ("sere:merge=1", "true or false"),
        ("sere:phase=both", "'decode' or 'all'"),
        ("sere:threshold=high", "a number"),
        ("none:k=1", "It takes none"),
        ("sere:name=x", "no parameter 'name'"),
        ("sere:=1", "no parameter ''"),
        ("", "Choose one of"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(PolicyError, match=message):
        parse_policy(text)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_defaults_and_its_own_name(name):
    assert make_policy(name).name == name
