"""The harness's model over a live batch gives what the harness's own gives."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from lm_eval.models.huggingface import HFLM

import sere
from sere.errors import DataError
from sere.evaluation.harness.lm import LiveLM

TEXTS = ["the first", "a", "another one, much longer than the rest", "4+4=", "b c d"]


def requests(*arguments, task="t"):
    return [SimpleNamespace(args=args, task_name=task, doc_id=i) for i, args in enumerate(arguments)]


def writing(**settings):
    return requests(*((text, {"max_gen_toks": 8, "do_sample": False, **settings}) for text in TEXTS))


@pytest.fixture
def own(model, tokenizer):
    return HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2, backend="causal")


def live(model, tokenizer, size=2, **settings):
    return LiveLM(model, tokenizer, size, **settings)


def test_scores_are_those_of_one_forward(model, tokenizer, own):
    asked = requests(
        ("the first", " yes"),
        ("the first", " no"),
        ("the first", " y"),
        ("the first", " z"),
        ("", "abc"),
        ("q", "x"),
    )
    mine = live(model, tokenizer)
    for (value, greedy), (expected, first) in zip(
        mine.loglikelihood(asked, disable_tqdm=True), own.loglikelihood(asked, disable_tqdm=True), strict=True
    ):
        assert value == pytest.approx(expected, abs=1e-4)
        assert greedy == first
    assert mine.requests == 5  # " y" and " z" differ in their last token alone, and are one sequence


def test_every_scored_token_is_a_decoding_step(model, tokenizer):
    mine = live(model, tokenizer, size=4)
    with sere.rerouted(model, None, "none") as handle:
        mine.loglikelihood(requests(("the first", "abc"), ("another", "xyz")), disable_tqdm=True)
        steps = {fields["steps"] for fields in handle.counters().decode.values()}
    assert steps == {3}
    assert (mine.occupancy.steps, mine.occupancy.mean) == (3, 2)


def test_rolling_scores_are_those_of_one_forward(model, tokenizer, own):
    asked = requests(("the whole text counts",))
    [mine] = live(model, tokenizer).loglikelihood_rolling(asked, disable_tqdm=True)
    [expected] = own.loglikelihood_rolling(asked, disable_tqdm=True)
    assert mine == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("size", [1, 2, 8])
def test_greedy_answers_are_those_of_generate(model, tokenizer, own, size):
    expected = own.generate_until(writing(until=[]), disable_tqdm=True)
    assert live(model, tokenizer, size).generate_until(writing(until=[]), disable_tqdm=True) == expected


def test_a_stop_text_ends_an_answer_and_is_not_part_of_it(model, tokenizer):
    mine = live(model, tokenizer)
    whole = mine.generate_until(writing(until=[]))
    stop = whole[0][3]
    steps = mine.occupancy.steps
    mine.reset()
    cut = mine.generate_until(writing(until=[stop]))
    assert cut == [text.split(stop)[0] for text in whole]
    assert mine.occupancy.steps < steps


def test_the_batch_is_full_while_there_are_enough(model, tokenizer):
    mine = live(model, tokenizer, size=2)
    mine.generate_until(writing(until=[]))
    # Five answers of eight tokens, the first of each from its prompt, in two places.
    assert (mine.occupancy.steps, mine.occupancy.lived, mine.requests) == (21, 35, 5)


def test_draws_depend_on_seed_and_request_not_on_company(model, tokenizer):
    asked = writing(until=[], do_sample=True, temperature=0.9, top_p=0.95, top_k=50, repetition_penalty=1.1)
    alone = live(model, tokenizer, size=1).generate_until(asked)
    assert live(model, tokenizer, size=4).generate_until(asked) == alone
    assert live(model, tokenizer, size=1, seed=1).generate_until(asked) != alone


def test_a_setting_that_cannot_be_followed_is_named(model, tokenizer):
    with pytest.raises(DataError, match="num_beams=4"):
        live(model, tokenizer).generate_until(writing(num_beams=4))
    with pytest.raises(DataError, match=r"context holds 256.*--gen max_gen_toks"):
        live(model, tokenizer).generate_until(writing(max_gen_toks=256))


def test_prompts_that_are_too_long_are_counted(model, tokenizer):
    mine = live(model, tokenizer)
    mine.generate_until(
        requests(("x" * 300, {"max_gen_toks": 4, "until": []}), ("y", {"max_gen_toks": 4, "until": []}))
    )
    mine.loglikelihood(requests(("x" * 300, "y")), disable_tqdm=True)
    assert mine.cut == 2
