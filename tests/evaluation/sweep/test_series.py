"""A line of a picture, written in one line."""

import pytest

from sere.errors import PolicyError
from sere.evaluation.sweep import chosen
from sere.evaluation.sweep.series import BESIDE, series, served
from sere.routing import RECIPES, parse_policy
from sere.routing.recipes import knob_of
from tests.artifact.made import artifact


def test_a_name_sweeps_the_knob():
    assert series("sere", 64, 4).policies == ("sere:top_s=1", "sere:top_s=2", "sere:top_s=3")


def test_other_parameters_stay_as_given():
    found = series("sere:threshold=0.3", 64, 3)
    assert found.name == "sere:threshold=0.3"
    assert found.policies == ("sere:top_s=1,threshold=0.3", "sere:top_s=2,threshold=0.3")


def test_several_values_sweep_another_parameter():
    found = series("sere:top_s=1,threshold=0.3/0.6", 64, 4)
    assert found.policies == ("sere:top_s=1,threshold=0.3", "sere:top_s=1,threshold=0.6")


def test_a_knob_that_is_given_makes_one_setting():
    assert series("xshare:size=9", 64, 4).policies == ("xshare:size=9",)


def test_settings_that_change_nothing_are_left_out():
    assert series("sere:top_s=2/4/5", 64, 4).policies == ("sere:top_s=2",)


def test_all_recipes_with_a_knob_are_there_by_default():
    found = {each.name: each for each in chosen(None, 64, 8)}
    assert set(found) == {n for n, recipe in RECIPES.items() if knob_of(recipe) is not None} | set(BESIDE)
    for each in found.values():
        assert all(parse_policy(form).inert(8) is None for form in each.policies)


def test_recipes_that_the_artifact_cannot_serve_are_left_out_by_default_and_only_then():
    names, left = served(artifact())
    assert set(left) == {"base", "exfold"}
    assert "routed_cross" in left["exfold"]
    found = {each.name for each in chosen(None, 64, 8, artifact())}
    assert found == {*names, *BESIDE}
    assert {"fold", "sere", "refit"} <= found
    assert [each.name for each in chosen(["exfold"], 64, 8, artifact())] == ["exfold"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["seer"], "Did you mean 'sere'"),
        (["sere:top_s=1/2,threshold=0.1/0.2"], "one parameter at a time"),
        (["sere:top_s=4"], "changes nothing"),
        (["none"], "changes nothing"),
        (["sere", "sere"], "given twice"),
        (["sere:tops=1"], "no parameter 'tops'"),
    ],
)
def test_what_cannot_be_swept_is_refused(texts, message):
    with pytest.raises(PolicyError, match=message):
        chosen(texts, 64, 4)
