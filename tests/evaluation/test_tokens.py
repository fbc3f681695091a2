"""Held-out sequences and prompts as token ids."""

import pytest
import torch
from tokenizers import processors

from sere.errors import DataError
from sere.evaluation.tokens import check_vocabulary, encode, heldout_sequences, left_padded
from tests.evaluation.conftest import byte_tokenizer

TEXTS = [f"document number {n} with some words in it" for n in range(10)]


def test_a_text_starts_with_the_beginning_token_once(tokenizer):
    assert encode(tokenizer, "ab") == [0, *tokenizer("ab").input_ids]
    assert encode(tokenizer, "<|end|>ab") == [0, *tokenizer("ab").input_ids]


def test_a_tokenizer_without_a_beginning_token_adds_none():
    bare = byte_tokenizer()
    bare.bos_token = None
    assert encode(bare, "ab") == bare("ab").input_ids


def test_sequences_are_full_follow_from_the_seed_and_begin_where_texts_begin(tokenizer):
    first = heldout_sequences(tokenizer, TEXTS, 5, 30, seed=0)
    assert first.shape == (5, 30)
    assert torch.equal(first, heldout_sequences(tokenizer, TEXTS, 5, 30, seed=0))
    assert not torch.equal(first, heldout_sequences(tokenizer, TEXTS, 5, 30, seed=1))
    assert all(tokenizer.decode(row[1:10].tolist()) == "document " for row in first)


def test_texts_that_are_too_short_are_joined(tokenizer):
    sequences = heldout_sequences(tokenizer, TEXTS, 2, 100, seed=0)
    assert sequences.shape == (2, 100)
    assert (sequences == 0).sum(1).tolist() == [3, 3]


def test_too_little_text_is_refused_with_what_there_is(tokenizer):
    with pytest.raises(
        DataError,
        match=r"10 .* give 3 sequences of 100 tokens .* 9 were asked for\. Ask",
    ):
        heldout_sequences(tokenizer, TEXTS, 9, 100, seed=0)


@pytest.mark.parametrize("texts", [[], ["", "  \n"]])
def test_empty_text_is_refused(tokenizer, texts):
    with pytest.raises(DataError, match="no held-out text"):
        heldout_sequences(tokenizer, texts, 1, 10, seed=0)


def test_prompts_are_padded_at_their_left(tokenizer):
    ids, mask = left_padded(tokenizer, [[5], [6, 7, 8]])
    assert ids.tolist() == [[0, 0, 5], [6, 7, 8]]
    assert mask.tolist() == [[0, 0, 1], [1, 1, 1]]


def test_an_end_token_that_the_tokenizer_appends_is_left_out():
    ending = byte_tokenizer()
    ending.bos_token = None
    ending.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|end|>", special_tokens=[("<|end|>", 0)]
    )
    assert ending("ab").input_ids[-1] == 0
    assert encode(ending, "ab") == ending("ab").input_ids[:-1]


def test_a_tokenizer_of_another_model_is_refused(model):
    check_vocabulary(model, [[256], []])
    with pytest.raises(DataError, match=r"token id 257, the model has 257 embeddings.*own tokenizer"):
        check_vocabulary(model, [[3], [257, 1]])
