"""Small random models of every family of the installed Transformers, by shrinking its configuration."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

VOCABULARY, LAYERS, EXPERTS, SLOTS = 96, 2, 8, 3

SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    **dict.fromkeys(("hidden_size", "d_model"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("ffn_hidden_size", "expert_ffn_hidden_size", "shared_experts_intermediate_size"), 32),
    **dict.fromkeys(
        ("moe_shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size"), 32
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), EXPERTS),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), SLOTS),
    **dict.fromkeys(("top_k_experts",), SLOTS),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), 0),
    **dict.fromkeys(("pad_token_id", "bos_token_id"), 0),
    "eos_token_id": 1,
    "head_dim": 16,
    "max_position_embeddings": 256,
    **dict.fromkeys(
        ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 16
    ),
    **dict.fromkeys(
        ("linear_head_dim", "linear_key_head_dim", "linear_value_head_dim", "index_head_dim"), 16
    ),
    **dict.fromkeys(
        ("linear_num_heads", "linear_num_key_heads", "linear_num_value_heads", "index_n_heads"), 2
    ),
    "layer_types": ["full_attention"] * LAYERS,
    "mlp_layer_types": ["sparse"] * LAYERS,
}
"""Field of a configuration to its small value; every family has some of them."""

_DEFAULT_LAYERS: dict[str, Any] = {"layer_types": ...}
_DEFAULT_BLOCKS: dict[str, Any] = {"layer_types": ..., "mlp_layer_types": ...}


def _rope(*sections: int) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections)}


SPECIAL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4", "mistral_large4"), _DEFAULT_LAYERS),
    **dict.fromkeys(("inkling", "inkling2", "inkling2_loop"), _DEFAULT_BLOCKS),
    "dbrx": {
        "attn_config": {"kv_n_heads": 4, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {
            "hidden_size": 32,
            "ffn_hidden_size": 32,
            "moe_num_experts": EXPERTS,
            "moe_top_k": SLOTS,
        },
    },
    "deepseek_v4": {"layer_types": ["sliding_attention"] * LAYERS, "mlp_layer_types": ["moe"] * LAYERS},
    "dots1": {"n_shared_experts": 1},
    "ernie4_5_vl_moe": {"moe_intermediate_size": [32, 32], "rope_parameters": _rope(1, 1, 2)},
    "flint": {"mlp_only_layers": []},
    "gemma4": {"enable_moe_block": True, "hidden_size_per_layer_input": 0},
    "glm4v_moe": {"rope_parameters": {**_rope(2, 1, 1), "partial_rotary_factor": 1.0}},
    "glm5_next": {"layer_types": ["linear_attention", "full_attention"], "qk_rope_head_dim": 0},
    "granitemoehybrid": {"mamba_n_heads": 4, "layer_types": ["linear_attention", "full_attention"]},
    "hy_v4_vl": {**_DEFAULT_LAYERS, "rope_parameters": _rope(4, 2, 2)},
    "jamba": {
        "expert_layer_period": 1,
        "expert_layer_offset": 0,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
    },
    "nemotron_h": {"layer_types": ["full_attention", "moe"]},
    "qwen4_exp": {
        "layer_types": ["linear_attention", "full_attention"],
        **dict.fromkeys(("indexer_n_heads", "indexer_kv_heads"), 1),
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
    },
    "longcat_flash": {"zero_expert_num": 2},
    "step3p7": {"sliding_window": 64},
    "zaya": {"num_experts_per_tok": 1, "layer_types": ...},
}
"""Fields of single families, by folder name; an ellipsis takes the default."""


@cache
def families() -> tuple[str, ...]:
    """Folder names of the families whose code defines a module with routed experts."""
    root = Path(transformers.__file__).parent / "models"
    wanted = re.compile(r"^class \w*(Experts|MoE|Moe|MoeBlock|MoEBlock|MoELayer)\(", re.MULTILINE)
    paths = sorted(root.glob("*/modeling_*.py"))
    return tuple(dict.fromkeys(path.parent.name for path in paths if wanted.search(path.read_text())))


def decoder_class(family: str) -> type[PreTrainedModel]:
    """Class with a language-model head, or else the family's text decoder."""
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    classes = [value for key, value in vars(module).items() if isinstance(value, type) and key[0] != "_"]
    classes = [c for c in classes if issubclass(c, PreTrainedModel) and c.__module__ == module.__name__]
    endings = ("ForCausalLM", "TextModel", "Model", "ForConditionalGeneration")
    for ending in endings:
        for found in classes:
            if found.__name__.endswith(ending) and not found.__name__.endswith("PreTrainedModel"):
                return found
    raise LookupError(f"{family} has no decoder")


def build(family: str, **changes: Any) -> PreTrainedModel:
    """Build a random model of ``family`` in evaluation mode, the same every time."""
    decoder = decoder_class(family)
    configuration = decoder.config_class
    fields = set(configuration.__init__.__annotations__) | set(getattr(configuration, "__annotations__", {}))
    for base in configuration.__mro__:
        fields |= set(vars(base).get("__annotations__", {}))
    fields |= set(configuration.attribute_map)
    chosen = {**SMALL, **SPECIAL.get(family, {}), **changes}
    chosen = {key: value for key, value in chosen.items() if key in fields and value is not ...}
    torch.manual_seed(0)
    model = decoder(configuration(**chosen)).eval()
    spread(model)
    return model


def spread(model: nn.Module) -> None:
    """Give all weights enough size that routers and experts differ visibly."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.shape[0] > 1:  # not a bias over experts, kept as a row
                parameter.copy_(
                    torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5
                )
