"""A tiny random model with a tokenizer of single bytes, and an artifact for it."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

from sere.bench.blocks import artifact_for

END = "<|end|>"


def byte_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([END, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END, padding_side="left"
    )


def tiny_model(seed=0, **changes):
    settings = {
        "vocab_size": 257,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 16,
        "intermediate_size": 32,
        "norm_topk_prob": True,
        "initializer_range": 0.3,
        "max_position_embeddings": 256,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    torch.manual_seed(seed)
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**settings, **changes})).eval()


@pytest.fixture(scope="session")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture(scope="session")
def model():
    return tiny_model()


@pytest.fixture(scope="session")
def artifact(model):
    return artifact_for(model, seed=1)


@pytest.fixture
def ids():
    return torch.randint(1, 257, (6, 20), generator=torch.Generator().manual_seed(3))
