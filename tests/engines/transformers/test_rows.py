"""Rows are told apart by what the forward is given."""

from __future__ import annotations

import pytest
import torch

from sere.engines.transformers.rows import Generation, row_kinds
from sere.routing import DECODE, PADDING, PREFILL

D, P, X = DECODE, PREFILL, PADDING


class Cache:
    """A cache of so many tokens."""

    def __init__(self, seen):
        self.seen = seen

    def get_seq_length(self):
        return self.seen


class LinearCache:
    """A cache without an attention layer."""

    def get_seq_length(self):
        raise ValueError("no attention layer")


def kinds(decoding=False, ends=None, **given):
    found = row_kinds(given, Generation(decoding, ends))
    return None if found is None else found.tolist()


def ids(rows, tokens):
    return torch.arange(2, 2 + rows * tokens).view(rows, tokens)


@pytest.mark.parametrize("seen", [4, torch.tensor(4)])
def test_one_token_a_row_after_others_is_decode(seen):
    assert kinds(input_ids=ids(3, 1), cache=Cache(seen)) == [D, D, D]


@pytest.mark.parametrize("seen", [0, torch.tensor(0)])
def test_a_prompt_of_one_token_is_prefill(seen):
    assert kinds(input_ids=ids(2, 1), cache=Cache(seen)) == [P, P]


def test_several_tokens_are_prefill_with_and_without_a_cache():
    assert kinds(input_ids=ids(1, 3), cache=Cache(5)) == [P, P, P]
    assert kinds(input_ids=ids(1, 3)) == [P, P, P]


def test_the_older_name_of_the_cache_is_understood():
    assert kinds(input_ids=ids(2, 1), past_key_values=Cache(1)) == [D, D]


def test_a_draft_being_verified_is_decode():
    assert kinds(decoding=True, input_ids=ids(1, 3), cache=Cache(5)) == [D, D, D]


def test_without_a_cache_even_generate_only_prefills():
    assert kinds(decoding=True, input_ids=ids(1, 3)) == [P, P, P]


def test_a_cache_without_length_decodes_one_token_at_a_time():
    assert kinds(input_ids=ids(2, 1), cache=LinearCache()) == [D, D]
    assert kinds(input_ids=ids(1, 2), cache=LinearCache()) == [P, P]


def test_embeddings_stand_for_tokens():
    assert kinds(inputs_embeds=torch.zeros(2, 1, 8), cache=Cache(3)) == [D, D]


def test_no_tokens_no_rows():
    assert kinds(cache=Cache(3)) is None


def test_zeros_of_the_mask_are_padding_on_either_side():
    left = torch.tensor([[0, 1, 1], [1, 1, 1]])
    assert kinds(input_ids=ids(2, 3), attention_mask=left) == [X, P, P, P, P, P]
    assert kinds(input_ids=ids(2, 3), attention_mask=left.flip(1)) == [P, P, X, P, P, P]


@pytest.mark.parametrize("seen", [3, torch.tensor(3)])
def test_the_mask_of_a_later_step_covers_the_past(seen):
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]])
    assert kinds(input_ids=ids(2, 1), attention_mask=mask, cache=Cache(seen)) == [D, X]


@pytest.mark.parametrize("seen", [2, torch.tensor(2)])
def test_a_mask_as_wide_as_a_static_cache_is_read_at_the_right_place(seen):
    mask = torch.tensor([[1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0]])
    assert kinds(input_ids=ids(2, 1), attention_mask=mask, cache=Cache(seen)) == [D, D]


@pytest.mark.parametrize("form", ["bool", "float", "by_layer_type"])
def test_a_prepared_mask_marks_tokens_that_may_not_see_themselves(form):
    real = torch.tensor([[0, 1, 1], [1, 1, 1]], dtype=torch.bool)
    mask = torch.tril(torch.ones(3, 3, dtype=torch.bool))[None, None] & real[:, None, None, :]
    mask = torch.cat([mask, torch.zeros(2, 1, 3, 2, dtype=torch.bool)], dim=3)  # room of a static cache
    if form == "float":
        mask = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    if form == "by_layer_type":
        mask = {"sliding_attention": None, "full_attention": mask}
    assert kinds(input_ids=ids(2, 3), attention_mask=mask) == [X, P, P, P, P, P]


def test_a_mask_of_unknown_form_means_no_padding():
    assert kinds(input_ids=ids(1, 2), attention_mask=object()) == [P, P]
    assert kinds(input_ids=ids(1, 2), attention_mask=torch.zeros(1, 2, 2)) == [P, P]


def test_a_finished_sequence_is_padding_only_inside_generate():
    ends = torch.tensor([1, 0])
    fed = torch.tensor([[5], [1], [0]])
    assert kinds(decoding=True, ends=ends, input_ids=fed, cache=Cache(4)) == [D, X, X]
    assert kinds(decoding=False, ends=ends, input_ids=fed, cache=Cache(4)) == [D, D, D]


def test_a_packed_batch_is_read_from_its_lengths():
    queries = torch.tensor([0, 3, 4, 5, 7, 7, 7], dtype=torch.int32)
    keys = torch.tensor([0, 3, 9, 10, 20, 20, 20], dtype=torch.int32)
    found = kinds(input_ids=ids(1, 9), cu_seq_lens_q=queries, cu_seq_lens_k=keys)
    assert found == [P, P, P, D, P, P, P, X, X]


def test_a_packed_batch_may_bring_lengths_for_each_kind_of_attention():
    queries = torch.tensor([0, 1, 3], dtype=torch.int32)
    keys = {"sliding_attention": torch.tensor([0, 2, 4]), "full_attention": torch.tensor([0, 9, 11])}
    assert kinds(input_ids=ids(1, 3), cu_seq_lens_q=queries, cu_seq_lens_k=keys) == [D, P, P]
