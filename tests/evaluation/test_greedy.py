"""Greedy decoding with a constant number of live sequences."""

import pytest
import torch

from sere.errors import DataError
from sere.evaluation.greedy import decode_greedily
from tests.engines.transformers import small
from tests.evaluation.conftest import byte_tokenizer, tiny_model


@pytest.fixture(scope="module")
def prompts():
    generator = torch.Generator().manual_seed(5)
    lengths = [2, 5, 3, 9, 4, 2, 7]
    return [torch.randint(1, 257, (n,), generator=generator).tolist() for n in lengths]


def with_transformers(model, prompt, budget):
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=budget, do_sample=False, pad_token_id=0
    )
    new = out[0, len(prompt) :].tolist()
    return new[: new.index(0)] if 0 in new else new


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_completions_equal_those_of_generate_one_by_one(model, tokenizer, prompts, batch_size):
    budgets = [3, 8, 5, 2, 12, 7, 4]
    done = decode_greedily(model, tokenizer, prompts, budgets, batch_size)
    expected = [with_transformers(model, *pair) for pair in zip(prompts, budgets, strict=True)]
    assert done.tokens == expected


def test_the_batch_stays_full_while_prompts_wait(model, tokenizer, prompts):
    done = decode_greedily(model, tokenizer, prompts * 4, [6] * 28, 4)
    # Seven full turns of five steps each: the first of six tokens comes from the prefill.
    assert done.steps == 35
    assert done.mean_live == 4


def test_a_sequence_stops_at_the_end_token(model, tokenizer, prompts):
    plain = decode_greedily(model, tokenizer, prompts[:1], [8], 1).tokens[0]
    ending = byte_tokenizer()
    ending.eos_token_id = plain[3]
    stopped = decode_greedily(model, ending, prompts[:1], [8], 1).tokens[0]
    assert stopped == plain[: plain.index(plain[3])]


def test_models_with_windows_decode_wave_by_wave(tokenizer, prompts):
    model = tiny_model(use_sliding_window=True, sliding_window=4, max_window_layers=0)
    done = decode_greedily(model, tokenizer, prompts[2:], [2, 6, 6, 4, 4], 3)
    budgets = zip(prompts[2:], [2, 6, 6, 4, 4], strict=True)
    assert done.tokens == [with_transformers(model, *pair) for pair in budgets]
    assert [len(tokens) for tokens in done.tokens] == [2, 6, 6, 4, 4]
    # Steps of the first wave: one of three, four of two; of the second: three of two.
    assert (done.steps, done.mean_live) == (8, (3 + 4 * 2 + 3 * 2) / 8)


def test_a_prompt_beyond_the_context_is_refused(model, tokenizer):
    with pytest.raises(DataError, match=r"prompt 2 has 250 tokens and 10 .* holds 256\. Shorten"):
        decode_greedily(model, tokenizer, [[1, 2], [3] * 250], [10, 10], 2)


def test_a_tokenizer_without_padding_or_end_decodes_the_same(tokenizer, prompts):
    """Padding is masked, so it needs no token of its own; without an end token the budget is the end."""
    model = tiny_model()
    model.generation_config.eos_token_id = None
    bare = byte_tokenizer()
    bare.bos_token = bare.eos_token = bare.pad_token = None
    done = decode_greedily(model, bare, prompts, [4] * 7, 3)
    assert [len(tokens) for tokens in done.tokens] == [4] * 7
    expected = decode_greedily(model, tokenizer, prompts, [4] * 7, 3).tokens
    assert all(tokens[: len(own)] == own for tokens, own in zip(done.tokens, expected, strict=True))


def test_a_prompt_without_tokens_is_refused(model, tokenizer):
    with pytest.raises(DataError, match="no token of prompt 2"):
        decode_greedily(model, tokenizer, [[1, 2], []], [3, 3], 2)


def test_fewer_prompts_than_places_are_told_by_the_mean(model, tokenizer, prompts):
    assert decode_greedily(model, tokenizer, prompts[:2], [6, 6], 16).mean_live == 2


# Caches of keys and values, of recurrent and convolution states, of both in a layer, and of its own kind.
@pytest.mark.parametrize(
    "family",
    ["mixtral", "deepseek_v2", "gpt_oss", "jamba", "granitemoehybrid", "zaya", "minimax", "lfm2_moe"],
)
def test_every_kind_of_cache_lets_sequences_go_and_come(family, tokenizer, prompts):
    model = small.build(family)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    known = [[token % vocabulary for token in prompt] for prompt in prompts]
    budgets = [3, 8, 5, 2, 6, 7, 4]
    together = decode_greedily(model, tokenizer, known, budgets, 3).tokens
    alone = [
        decode_greedily(model, tokenizer, [p], [b], 1).tokens[0] for p, b in zip(known, budgets, strict=True)
    ]
    assert together == alone
