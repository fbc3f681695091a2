"""Small random models of the families that are tested, as Transformers configurations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COMMON = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
DENSE = {"intermediate_size": 64}
DEEPSEEK = {
    **DENSE,
    "moe_intermediate_size": 32,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "num_hidden_layers": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
    "topk_group": 2,
    "n_group": 4,
}


@dataclass(frozen=True)
class Family:
    """A family: its Transformers model type and what differs from the common configuration."""

    model_type: str
    values: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"

    def config(self) -> Any:
        from transformers import AutoConfig

        return AutoConfig.for_model(self.model_type, **{**COMMON, **self.values})


FAMILIES = {
    "qwen3_moe": Family(
        "qwen3_moe",
        {
            **DENSE,
            "moe_intermediate_size": 32,
            "num_experts": 16,
            "num_experts_per_tok": 4,
            "head_dim": 32,
            "norm_topk_prob": True,
        },
    ),
    "qwen2_moe": Family(
        "qwen2_moe",
        {
            **DENSE,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
            "num_experts": 16,
            "num_experts_per_tok": 4,
        },
    ),
    "olmoe": Family("olmoe", {"intermediate_size": 32, "num_experts": 16, "num_experts_per_tok": 4}),
    "mixtral": Family("mixtral", {"intermediate_size": 64, "num_local_experts": 8, "num_experts_per_tok": 3}),
    "glm4_moe": Family(
        "glm4_moe",
        {
            **DENSE,
            "moe_intermediate_size": 32,
            "n_routed_experts": 16,
            "n_shared_experts": 1,
            "num_experts_per_tok": 4,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "num_hidden_layers": 3,
            "head_dim": 32,
            "routed_scaling_factor": 1.5,
        },
    ),
    "deepseek_v2": Family("deepseek_v2", {**DEEPSEEK, "topk_method": "group_limited_greedy"}),
    "deepseek_v3": Family(
        "deepseek_v3",
        {**DEEPSEEK, "q_lora_rank": 32, "routed_scaling_factor": 2.0, "topk_method": "noaux_tc"},
    ),
    "gpt_oss": Family(
        "gpt_oss",
        {
            "intermediate_size": 64,
            "num_local_experts": 16,
            "num_experts_per_tok": 4,
            "head_dim": 32,
            "sliding_window": 32,
        },
        dtype="bfloat16",
    ),
}

GPU = Family(
    "qwen3_moe",
    {
        "hidden_size": 256,
        "intermediate_size": 256,
        "moe_intermediate_size": 128,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "head_dim": 64,
        "norm_topk_prob": True,
    },
    dtype="bfloat16",
)
"""Sizes that GPU kernels take."""
