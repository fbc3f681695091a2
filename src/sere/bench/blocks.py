"""Decode speed at a real size: decoder blocks of Qwen3-30B-A3B's shape with random weights.

A small model fits the processor's caches, so fewer experts save it nothing. These blocks have the
published shape (hidden 2048, 128 experts of width 768, top-8, 32 heads of 128, 4 key-value heads)
and a small vocabulary. Speed does not depend on the values of weights, but on which experts the
router chooses. A random router would choose almost uniformly, 82 of 128 experts for 16 sequences;
the real model's choice is skewed and gives about 49 (arXiv 2511.02237). So all embeddings share a
direction, along which the router likes some experts more: :data:`SKEW` is set to give about 49.
The similarity matrix is random and symmetric: without a threshold the number of experts read does
not depend on it. Nothing about quality can be learnt here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sere.artifact import Artifact, CalibrationRecord, LayerRecord
from sere.errors import DataError
from sere.version import __version__

VOCABULARY = 512
LAYER_BYTES = 4 * (128 * 3 * 768 * 2048 + 2 * 2048 * (32 + 4) * 128)
"""Weights of one block in float32: experts and attention."""
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup/memory.max")
"""Limit of a container, bytes or ``max``; the machine's own figures do not know of it."""
SKEW = 0.85
"""Standard deviation, over experts, of what the router adds to its logits for every token.

The part of the logits that differs from token to token has a standard deviation of 1."""


def build(layers: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32, scale: int = 1) -> Any:
    """Make the blocks; a layer takes 2.5 GB in float32, which shows the cost of reading best.

    Args:
        layers: Blocks.
        seed: Seed of all weights.
        dtype: Floating type of the weights.
        scale: Divides the widths, for tests; 1 is the real size.

    Raises:
        DataError: If the machine has not the memory.

    """
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=2048 // scale,
        num_hidden_layers=layers,
        num_attention_heads=32 // scale,
        num_key_value_heads=max(1, 4 // scale),
        head_dim=128 // scale,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768 // scale,
        intermediate_size=6144 // scale,
        norm_topk_prob=True,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        dtype=dtype,
    )
    require_memory(layers, scale)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3MoeForCausalLM._from_config(config, dtype=dtype, experts_implementation="grouped_mm")
    model.eval()
    _skew(model, generator)
    return model


def require_memory(layers: int, scale: int = 1) -> None:
    """Refuse before anything is made if the blocks would not fit; only Linux and its containers are asked.

    Raises:
        DataError: If less is available than the float32 weights and a fifth more.

    """
    needed = 1.2 * layers * LAYER_BYTES / scale**2
    if MEMINFO.is_file():
        fields = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        available = 1024 * int(fields["MemAvailable"].split()[0])
        limit = CGROUP.read_text().strip() if CGROUP.is_file() else "max"
        if limit.isdecimal():
            available = min(available, int(limit))
        if available < needed:
            raise DataError(
                f"{layers} block(s) of the real size need {needed / 1e9:.1f} GB of memory, "
                f"{available / 1e9:.1f} GB are available. Close other programs or use a larger machine."
            )


def _skew(model: Any, generator: torch.Generator) -> None:
    """Give all embeddings a shared direction, half of their length, and the routers a liking along it."""
    width = model.config.hidden_size
    shared = torch.randn(width, generator=generator)
    shared = shared / shared.norm()
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding.copy_(torch.randn(embedding.shape, generator=generator) + shared * width**0.5)
        for layer in model.model.layers:
            # Untrained attention adds one and the same vector to every token; keep it small.
            layer.self_attn.o_proj.weight.mul_(0.1)
            router = layer.mlp.gate.weight
            liking = torch.randn(router.shape[0], 1, generator=generator)
            # Normalised hidden states have length sqrt(width), and 1 / sqrt(2) of it along the direction.
            noise = torch.randn(router.shape, generator=generator) * (2 / width) ** 0.5
            noise -= (noise @ shared).unsqueeze(1) * shared
            router.copy_(noise + SKEW * liking * shared * (2 / width) ** 0.5)


def artifact_for(model: Any, seed: int = 0) -> Artifact:
    """Make an artifact with random symmetric similarities in [0, 1]."""
    from sere.engines.transformers import describe, find_layers

    generator = torch.Generator().manual_seed(seed)
    found = find_layers(model)
    statistics = {}
    for layer in found:
        values = torch.rand(layer.num_experts, layer.num_experts, generator=generator)
        similarity = (values + values.T) / 2
        statistics[layer.name] = {"frobenius": similarity.fill_diagonal_(1.0)}
    layers = tuple(
        LayerRecord(name=layer.name, index=layer.index, num_experts=layer.num_experts, top_k=layer.top_k)
        for layer in found
    )
    record = describe(model).model_copy(update={"id": "random blocks of Qwen3-30B-A3B's shape"})
    calibration = CalibrationRecord(data="random similarities", seed=seed, sere_version=__version__)
    return Artifact.build(record, layers, statistics, ("frobenius",), calibration)


def random_text(batch_size: int, length: int, seed: int = 0) -> torch.Tensor:
    """Token ids drawn uniformly, shape [batch_size, length], int64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (batch_size, length), generator=generator)
