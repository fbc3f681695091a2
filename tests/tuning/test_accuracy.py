"""A tolerance on accuracy, on prompts that are decoded for real."""

import math

import pytest

from sere.demo.tasks import Example
from sere.errors import TuningError
from sere.evaluation.exact_match import solve
from sere.evaluation.sweep import Evaluator
from sere.routing import parse_policy
from sere.tuning import Accuracy, Tolerance, Traffic, tune
from tests.tuning.conftest import CONFIG, TEXTS

BATCH = Traffic.of([(4, 1.0)])
RECIPES = ["energy", "top_k"]


@pytest.fixture(scope="module")
def fresh(model, tokenizer, artifact):
    return Evaluator(model, tokenizer, artifact, TEXTS, CONFIG)


@pytest.fixture(scope="module")
def examples(model, tokenizer):
    """Prompts whose right answer is what the unmodified model writes, so that every change is a loss."""
    asked = [Example("made", f"{n} and", "xxxx") for n in range(80)]
    written = solve(model, tokenizer, asked, 4).answers
    return [Example("made", e.prompt, text or "-") for e, text in zip(asked, written, strict=True)]


@pytest.fixture(scope="module")
def accuracy(fresh, examples):
    return Accuracy(fresh, examples, seed=0)


def test_losses_are_the_right_answers_lost_group_by_group(accuracy, fresh, model, tokenizer):
    assert accuracy.prompts == 80
    assert accuracy.split.search == (0, 1)
    assert accuracy.losses("none", 4, (0, 1)) == [0.0, 0.0]
    groups = accuracy._groups
    both = [*groups[2], *groups[3]]
    plain = solve(model, tokenizer, both, 4).right
    with fresh.rerouting(parse_policy("top_k:k=1")).on(model):
        ours = solve(model, tokenizer, both, 4).right
    wanted = [(sum(plain[at : at + 20]) - sum(ours[at : at + 20])) / 20 for at in (0, 20)]
    assert accuracy.losses("top_k:k=1", 4, (2, 3)) == pytest.approx(wanted)
    assert sum(wanted) > 0


def test_no_prompt_is_in_two_groups(accuracy, examples):
    dealt = [example for group in accuracy._groups for example in group]
    assert sorted(dealt, key=lambda e: e.prompt) == sorted(examples, key=lambda e: e.prompt)


def test_no_loss_in_few_prompts_is_no_proof(accuracy):
    assert accuracy.bound([0.0, 0.0]) == pytest.approx(-math.log(0.05) / 40)
    assert accuracy.bound([0.1, 0.3]) == pytest.approx(accuracy.split.bound([0.1, 0.3]))


def test_a_tolerance_on_accuracy_is_kept_on_prompts_that_the_search_did_not_decode(fresh, accuracy):
    found = tune(
        fresh, "accuracy_loss<=60pt", BATCH, recipes=RECIPES, targets={"fast": 1.0}, accuracy=accuracy
    )
    (point,) = found.points
    assert point.confirmed
    (size,) = point.sizes
    assert size.loss.seeds == pytest.approx(accuracy.losses(point.policy, 4, accuracy.split.heldout))
    assert size.loss.mean <= 0.6
    assert size.bound == accuracy.bound(accuracy.losses(point.policy, 4, accuracy.split.search)) <= 0.6
    assert len(size.kl.seeds) == len(found.heldout)
    assert found.prompts == 80


def test_too_narrow_a_tolerance_for_so_few_prompts_leaves_the_model_alone(fresh, accuracy):
    found = tune(fresh, "accuracy_loss<=0.1pt", BATCH, recipes=RECIPES, accuracy=accuracy)
    assert found.recommended is None


def test_prompts_belong_to_a_tolerance_on_accuracy_and_to_no_other(fresh, accuracy, examples):
    with pytest.raises(TuningError, match="Give a task file"):
        tune(fresh, "accuracy_loss<=1pt", BATCH)
    with pytest.raises(TuningError, match="measured on text"):
        tune(fresh, "kl<=1", BATCH, accuracy=accuracy)
    with pytest.raises(TuningError, match="at least 80"):
        Accuracy(fresh, examples[:40], seed=0)
    assert Tolerance.parse("accuracy_loss<=0.5pt").limit == pytest.approx(0.005)


def test_what_was_decoded_is_kept(model, tokenizer, artifact, examples, tmp_path, monkeypatch):
    file = tmp_path / "prompts.jsonl"
    first = Accuracy(Evaluator(model, tokenizer, artifact, TEXTS, CONFIG), examples, 0, file)
    losses = first.losses("top_k:k=1", 4, (0, 1))
    monkeypatch.setattr("sere.tuning.accuracy.solve", lambda *_: pytest.fail("decoded again"))
    again = Accuracy(Evaluator(model, tokenizer, artifact, TEXTS, CONFIG), examples, 0, file)
    assert again.losses("top_k:k=1", 4, (0, 1)) == losses
