"""A model with images in its prompts: the outer forward sees tokens, the decoder embeddings."""

from __future__ import annotations

import torch
from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

import sere
from sere.engines.transformers import find_layers
from tests.engines.transformers import small
from tests.engines.transformers.drive import random_artifact

IMAGE, START, END = 90, 92, 93


def build() -> Qwen3VLMoeForConditionalGeneration:
    text = small.build("qwen3_vl_moe").config.to_dict()
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}
    vision = {
        **dict.fromkeys(("hidden_size", "intermediate_size", "out_hidden_size"), 32),
        **dict.fromkeys(("depth", "num_heads", "spatial_merge_size", "temporal_patch_size"), 2),
        "patch_size": 4,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    config = Qwen3VLMoeConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=91,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    torch.manual_seed(0)
    model = Qwen3VLMoeForConditionalGeneration(config).eval()
    small.spread(model)
    return model


def test_prompts_with_images_are_kept_and_their_continuations_rerouted():
    model = build()
    ids = torch.tensor([[5, 6, START, *[IMAGE] * 4, END, 7, 8], [9, 10, START, *[IMAGE] * 4, END, 11, 12]])
    inputs = {
        "input_ids": ids,
        "pixel_values": torch.randn(32, 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(0)),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * 2),
        "mm_token_type_ids": (ids == IMAGE).long(),
        "max_new_tokens": 5,
        "do_sample": False,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    plain = model.generate(**inputs)
    with sere.rerouted(model, None, "none"):
        assert torch.equal(model.generate(**inputs), plain)
    with sere.rerouted(model, random_artifact(model), "sere:top_s=1,floor=0") as handle:
        model.generate(**inputs)
        counters = handle.counters()
    for layer in find_layers(model):
        prefill, decode = counters.prefill[layer.name], counters.decode[layer.name]
        assert (prefill["prefill_rows"], prefill["rerouted"]) == (20, 0)
        assert (decode["steps"], decode["decode_rows"]) == (4, 8)
        assert decode["rerouted"] > 0
