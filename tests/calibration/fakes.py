"""A tokenizer of one token a character, texts, and a small model with float32 experts."""

from __future__ import annotations

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from sere.calibration import CalibrationConfig

TEXTS = [f"document {number} says something about the number {number * number}" for number in range(40)]
QUICK = CalibrationConfig(sequences=6, sequence_length=16, batch_sequences=2)


class Characters:
    """Each character a token below 96; ``eos_token_id`` may be None."""

    def __init__(self, eos_token_id: int | None = 1) -> None:
        self.eos_token_id = eos_token_id

    def __call__(self, texts, **options):
        return {"input_ids": [[2 + ord(letter) % 90 for letter in text] for text in texts]}


def small_model(seed: int = 0) -> Qwen3MoeForCausalLM:
    """Two layers of 8 experts, top-3, hidden size 32."""
    torch.manual_seed(seed)
    config = Qwen3MoeConfig(
        vocab_size=96,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=16,
        intermediate_size=32,
        initializer_range=0.3,
    )
    return Qwen3MoeForCausalLM(config).eval()
