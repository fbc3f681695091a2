"""Ladders, and the search for the strongest setting that passes."""

import pytest

from sere.errors import PolicyError
from sere.routing import parse_policy
from sere.tuning.ladder import finer, ladders, strongest
from tests.artifact.made import artifact


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("start", [None, 0, 3, 8, 20])
def test_the_strongest_passing_setting_is_found_and_each_is_asked_once(count, start):
    for first in range(count + 1):
        asked = []

        def passes(at, first=first, asked=asked):
            asked.append(at)
            return at >= first

        assert strongest(count, passes, start) == (first if first < count else None)
        assert len(asked) == len(set(asked))


def test_near_the_start_few_are_asked():
    asked = []
    assert strongest(1000, lambda at: asked.append(at) or at >= 501, 500) == 501
    assert len(asked) == 2


def test_what_is_found_has_passed_even_if_the_ladder_is_not_in_order():
    good = {1, 4, 7}
    for start in (None, *range(9)):
        assert strongest(9, good.__contains__, start) in good | {None}


def test_whole_numbers_stay_whole_and_others_are_spaced_by_ratio():
    assert finer(("energy:size=4", "energy:size=8"), 4) == tuple(f"energy:size={n}" for n in range(4, 9))
    assert finer(("oea:top_s=1", "oea:top_s=2"), 8) == ("oea:top_s=1", "oea:top_s=2")
    fine = finer(("refit:share=0.4", "refit:share=0.1"), 8)
    assert fine == (
        "refit:share=0.4",
        "refit:share=0.28",
        "refit:share=0.2",
        "refit:share=0.14",
        "refit:share=0.1",
    )


def test_only_the_number_that_differs_is_changed():
    fine = finer(("sere:top_s=1,threshold=0.2", "sere:top_s=1,threshold=0.4"), 8)
    assert fine[1] == "sere:top_s=1,threshold=0.24"
    assert all(parse_policy(form) for form in fine)


def test_controls_are_not_searched_unless_asked_for():
    found = ladders(None, 64, 8)
    assert {"sere", "oea", "refit", "top_k"} <= set(found)
    assert not {"random", "least_similar", "none"} & set(found)
    assert {"base", "exfold"} <= set(found)
    assert set(found) - set(ladders(None, 64, 8, artifact())) == {"base", "exfold"}
    assert set(ladders(["random"], 64, 8)) == {"random"}
    with pytest.raises(PolicyError, match="Did you mean 'sere'"):
        ladders(["seer"], 64, 8)


def test_ladders_run_from_few_experts_to_many(evaluator):
    for name in ("energy", "refit", "tolerance", "oea"):
        forms = finer(ladders([name], 16, 4)[name], 4)
        assert len(set(forms)) == len(forms)
        read = [evaluator.measure(form, 4, 0).after for form in (forms[0], forms[len(forms) // 2], forms[-1])]
        assert read == sorted(read)
