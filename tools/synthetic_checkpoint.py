"""Write a checkpoint of random weights in the shapes of a real one, larger than memory if need be.

    python tools/synthetic_checkpoint.py FOLDER --gb 14
    python tools/synthetic_checkpoint.py FOLDER --gb 1.5 --experts 32 --vocabulary 32768

Qwen3-MoE, bfloat16, sharded, each expert by itself as on the Hub; shapes are those of Qwen3-30B-A3B
(https://huggingface.co/Qwen/Qwen3-30B-A3B/blob/main/config.json) unless told otherwise. ``--gb`` gives
as many layers as it takes to reach that size. Weights are normal, of standard deviation 0.02; norms are one.
A tensor depends on ``--seed``, its name and its shape only. One shard is held at a time. The tokenizer is
the bundled model's, so that text goes in; what comes out means nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig

from sere.demo.model import bundled_model

DEVIATION = 0.02
GB = 10**9
BYTES = 2
"""Of a bfloat16."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3-MoE model; the defaults are those of Qwen3-30B-A3B."""

    layers: int = 48
    experts: int = 128
    slots: int = 8
    width: int = 2048
    inner: int = 768
    heads: int = 32
    key_heads: int = 4
    head: int = 128
    vocabulary: int = 151936

    def layer(self, number: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and shape of each tensor of a decoder layer."""
        queries, keys = self.heads * self.head, self.key_heads * self.head
        within = {
            "input_layernorm": (self.width,),
            "post_attention_layernorm": (self.width,),
            "self_attn.q_norm": (self.head,),
            "self_attn.k_norm": (self.head,),
            "self_attn.q_proj": (queries, self.width),
            "self_attn.k_proj": (keys, self.width),
            "self_attn.v_proj": (keys, self.width),
            "self_attn.o_proj": (self.width, queries),
            "mlp.gate": (self.experts, self.width),
        }
        for expert in range(self.experts):
            within[f"mlp.experts.{expert}.gate_proj"] = (self.inner, self.width)
            within[f"mlp.experts.{expert}.up_proj"] = (self.inner, self.width)
            within[f"mlp.experts.{expert}.down_proj"] = (self.width, self.inner)
        for name, shape in within.items():
            yield f"model.layers.{number}.{name}.weight", shape

    def outside(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and shape of each tensor outside the decoder layers."""
        yield "model.embed_tokens.weight", (self.vocabulary, self.width)
        yield "model.norm.weight", (self.width,)
        yield "lm_head.weight", (self.vocabulary, self.width)

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and shape of every tensor."""
        for number in range(self.layers):
            yield from self.layer(number)
        yield from self.outside()

    def config(self) -> Qwen3MoeConfig:
        """Return the configuration that belongs to these sizes."""
        config = Qwen3MoeConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.key_heads,
            head_dim=self.head,
            num_experts=self.experts,
            num_experts_per_tok=self.slots,
            moe_intermediate_size=self.inner,
            intermediate_size=8 * self.inner,
            norm_topk_prob=True,
            initializer_range=DEVIATION,
            dtype="bfloat16",
        )
        config.architectures = ["Qwen3MoeForCausalLM"]
        return config


def layers_for(shape: Shape, gigabytes: float) -> int:
    """Fewest layers with which the checkpoint has at least that size, in 10^9 bytes."""
    each, rest = (
        BYTES * sum(math.prod(one) for _, one in part) for part in (shape.layer(0), shape.outside())
    )
    return max(1, math.ceil((gigabytes * GB - rest) / each))


def value(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Make a tensor, bfloat16."""
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    draw = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    return torch.empty(shape).normal_(0, DEVIATION, generator=draw).to(torch.bfloat16)


def shards(shape: Shape, most: int) -> list[list[tuple[str, tuple[int, ...]]]]:
    """Deal the tensors out in their order; a shard has at most ``most`` bytes, or one tensor."""
    dealt: list[list[tuple[str, tuple[int, ...]]]] = []
    room = 0
    for name, one in shape.tensors():
        size = BYTES * math.prod(one)
        if not dealt or size > room:
            dealt.append([])
            room = most
        dealt[-1].append((name, one))
        room -= size
    return dealt


def write(folder: Path, shape: Shape, *, seed: int = 0, shard: int = GB // 2) -> int:
    """Write the checkpoint, whole or not at all, and return the bytes of its weights.

    Raises:
        SystemExit: If the folder is there already, or the disk has no room for it.

    """
    total = sum(BYTES * math.prod(one) for _, one in shape.tensors())
    if folder.exists():
        raise SystemExit(f"{folder} is there already. Remove it, or choose another folder.")
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    free = shutil.disk_usage(temporary).free
    try:
        if free < 1.01 * total:
            raise SystemExit(
                f"{folder} needs {total / GB:.1f} GB, the disk has {free / GB:.1f} GB. Choose another disk."
            )
        dealt = shards(shape, shard)
        where = {}
        for number, tensors in enumerate(dealt, 1):
            file = f"model-{number:05}-of-{len(dealt):05}.safetensors"
            values = {name: value(name, one, seed) for name, one in tensors}
            save_file(values, temporary / file, metadata={"format": "pt"})
            where.update(dict.fromkeys(values, file))
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
        (temporary / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
        shape.config().save_pretrained(temporary)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(bundled_model() / file, temporary / file)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--gb", type=float, help="least size, 10^9 bytes")
    size.add_argument("--layers", type=int, default=48)
    for name, default in (
        ("experts", 128),
        ("slots", 8),
        ("width", 2048),
        ("inner", 768),
        ("vocabulary", 151936),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard-mb", type=float, default=500, help="most of a file, and of memory")
    args = parser.parse_args()
    sizes = ("experts", "slots", "width", "inner", "vocabulary")
    shape = Shape(layers=1, **{name: getattr(args, name) for name in sizes})
    layers = args.layers if args.gb is None else layers_for(shape, args.gb)
    shape = Shape(**{**vars(shape), "layers": layers})
    total = write(args.folder, shape, seed=args.seed, shard=int(args.shard_mb * 10**6))
    print(f"{args.folder}: {layers} layers, {total / GB:.2f} GB")


if __name__ == "__main__":
    main()
