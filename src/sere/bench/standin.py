"""A checkpoint of random weights in the layer shape of Qwen3-30B-A3B, written to a folder for any engine.

Speed does not depend on the values of weights but on which experts the router chooses. All embeddings
share a direction, chosen so that 16 rows name about as many experts as measured on the real model (about
49, arXiv 2511.02237); without it routing would be uniform, and 16 rows would name 82 of 128. The vocabulary
is scaled to its share of layers, so that the head weighs as much beside a layer as in the real model.
Similarities are random: without a threshold the number of experts read does not depend on them.
Nothing about quality can be learnt from it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from sere.artifact import Artifact, CalibrationRecord, LayerRecord, ModelRecord
from sere.errors import DataError
from sere.version import __version__

NAME: Final = "stand-in"
"""The word for it on the command line."""
REAL_LAYERS, REAL_VOCABULARY = 48, 151936
EXPERTS, TOP_K = 128, 8
SPREAD = 0.7
"""Weight of the embeddings' shared direction."""
SHAPE: Final[dict[str, Any]] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": EXPERTS,
    "num_experts_per_tok": TOP_K,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "attention_bias": False,
}
_DONE: Final = "stand-in.json"


def config(layers: int, scale: int = 1) -> dict[str, Any]:
    """Give the model's configuration; ``scale`` divides the widths, for tests."""
    narrow = {
        name: max(SHAPE[name] // scale, 1)
        for name in ("hidden_size", "intermediate_size", "moe_intermediate_size", "num_attention_heads")
    }
    narrow["num_key_value_heads"] = max(SHAPE["num_key_value_heads"] // scale, 1)
    vocabulary = max(REAL_VOCABULARY * layers // REAL_LAYERS // scale, 64)
    return {
        **SHAPE,
        **narrow,
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def described(layers: int, dtype: str = "bfloat16") -> str:
    """Say in words what it is."""
    return f"{layers} layers of Qwen3-30B-A3B's shape with random weights, {dtype}"


def record(layers: int, scale: int = 1) -> ModelRecord:
    """Describe it to an artifact."""
    width = config(layers, scale)["hidden_size"]
    return ModelRecord.describe(
        id=NAME, architecture=SHAPE["model_type"], hidden_size=width, layers=layer_records(layers)
    )


def layer_records(layers: int) -> tuple[LayerRecord, ...]:
    """Describe its layers."""
    return tuple(
        LayerRecord(name=f"model.layers.{index}.mlp.experts", index=index, num_experts=EXPERTS, top_k=TOP_K)
        for index in range(layers)
    )


def artifact(layers: int, scale: int = 1) -> Artifact:
    """Make an artifact of random symmetric similarities in [0, 1)."""
    generator, records = torch.Generator().manual_seed(0), layer_records(layers)
    drawn = {each.name: torch.rand(EXPERTS, EXPERTS, generator=generator) for each in records}
    return Artifact.build(
        record(layers, scale),
        records,
        {name: {"frobenius": ((value + value.T) / 2).fill_diagonal_(1)} for name, value in drawn.items()},
        ("frobenius",),
        CalibrationRecord(source="reference", data="random numbers", sere_version=__version__),
    )


def write(
    folder: str | Path, layers: int = 2, *, seed: int = 1, spread: float = SPREAD, scale: int = 1
) -> Path:
    """Write checkpoint, tokenizer and artifact, whole or not at all; what is there already is kept.

    Args:
        folder: Where; 1.3 GB a layer, in bfloat16.
        layers: Decoder layers, at least 1.
        seed: Seed of the weights.
        spread: Weight of the shared direction; 0 gives uniform routing.
        scale: Divides the widths; anything but 1 is not the real size, and is for tests.

    Raises:
        DataError: If ``layers`` is below 1, or there is no room for it.

    """
    if layers < 1:
        raise DataError(f"a model has 1 layer or more, got {layers}.")
    folder = Path(folder).resolve()
    made = {"layers": layers, "seed": seed, "spread": spread, "scale": scale, "sere": __version__}
    if (folder / _DONE).is_file() and json.loads((folder / _DONE).read_text(encoding="utf-8")) == made:
        return folder
    _check_room(folder.parent, layers, scale)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        settings = config(layers, scale)
        (temporary / "config.json").write_text(
            json.dumps({**settings, "dtype": "bfloat16"}, indent=2) + "\n", encoding="utf-8"
        )
        _write_weights(temporary, settings, seed, spread)
        _write_tokenizer(temporary, settings["vocab_size"])
        artifact(layers, scale).save_pretrained(temporary)
        (temporary / _DONE).write_text(json.dumps(made) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}. Free the space.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _check_room(parent: Path, layers: int, scale: int) -> None:
    parent.mkdir(parents=True, exist_ok=True)
    settings = config(layers, scale)
    width, inner = settings["hidden_size"], settings["moe_intermediate_size"]
    needed = 2 * (layers * EXPERTS * 3 * width * inner + 2 * settings["vocab_size"] * width) * 1.1
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise DataError(
            f"the {NAME} model needs {needed / 1e9:.1f} GB in {parent}, {free / 1e9:.1f} GB are free. "
            "Free the space or choose another place."
        )


def _write_weights(folder: Path, settings: dict[str, Any], seed: int, spread: float) -> None:
    """Write one file a layer, and one for embeddings and head, so that little memory is needed."""
    generator, total = torch.Generator().manual_seed(seed), 0
    index: dict[str, str] = {}
    for part, tensors in _parts(settings, generator, spread):
        name = f"model-{part}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        index |= dict.fromkeys(tensors, name)
        total += sum(tensor.nbytes for tensor in tensors.values())
    document = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document), encoding="utf-8")


def _parts(
    settings: dict[str, Any], generator: torch.Generator, spread: float
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    width, heads, head = settings["hidden_size"], settings["num_attention_heads"], settings["head_dim"]
    groups, inner = settings["num_key_value_heads"], settings["moe_intermediate_size"]

    def drawn(rows: int, columns: int, inputs: int | None = None) -> Tensor:
        """Uniform with the variance of 1 / inputs."""
        bound = (3 / (inputs or columns)) ** 0.5
        return torch.empty(rows, columns, dtype=torch.bfloat16).uniform_(-bound, bound, generator=generator)

    embedding = drawn(settings["vocab_size"], width, inputs=1)
    embedding += (spread * torch.randn(width, generator=generator)).to(embedding.dtype)
    yield (
        "ends",
        {
            "model.embed_tokens.weight": embedding,
            "lm_head.weight": drawn(settings["vocab_size"], width),
            "model.norm.weight": torch.ones(width, dtype=torch.bfloat16),
        },
    )
    for layer in range(settings["num_hidden_layers"]):
        tensors = {
            "self_attn.q_proj": drawn(heads * head, width),
            "self_attn.k_proj": drawn(groups * head, width),
            "self_attn.v_proj": drawn(groups * head, width),
            "self_attn.o_proj": drawn(width, heads * head),
            "self_attn.q_norm": torch.ones(head, dtype=torch.bfloat16),
            "self_attn.k_norm": torch.ones(head, dtype=torch.bfloat16),
            "input_layernorm": torch.ones(width, dtype=torch.bfloat16),
            "post_attention_layernorm": torch.ones(width, dtype=torch.bfloat16),
            "mlp.gate": drawn(EXPERTS, width),
        }
        for expert in range(EXPERTS):
            tensors[f"mlp.experts.{expert}.gate_proj"] = drawn(inner, width)
            tensors[f"mlp.experts.{expert}.up_proj"] = drawn(inner, width)
            tensors[f"mlp.experts.{expert}.down_proj"] = drawn(width, inner)
        yield f"{layer:03}", {f"model.layers.{layer}.{name}.weight": value for name, value in tensors.items()}


def _write_tokenizer(folder: Path, size: int) -> None:
    """Write one of the words ``w0``, ``w1``, ...: every id is a word, and text goes to ids and back."""
    words = {f"w{number}": number for number in range(size)}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": f"w{number}",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number in range(3)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w2"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "w0",
        "eos_token": "w1",
        "unk_token": "w2",
        "model_max_length": SHAPE["max_position_embeddings"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
