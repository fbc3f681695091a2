"""A checkpoint calibrated layer by layer from disk gives the artifact of the whole model, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from sere.calibration.stream.weights import Weights
from sere.errors import EngineError
from tests.calibration.fakes import QUICK, small_model
from tests.calibration.stream.made import in_memory, same, saved, streamed
from tests.engines.transformers.small import build, families

SHAPES = {
    "qwen2_moe": "shared experts",
    "deepseek_v3": "latent attention, dense first layers, grouped routing",
    "gpt_oss": "sliding windows, fused experts with biases",
    "jamba": "Mamba beside attention",
    "qwen3_next": "linear attention beside attention",
    "granitemoehybrid": "Mamba 2, scaled embeddings",
    "zaya": "a second state handed from layer to layer",
    "gemma4": "tied embeddings, inputs for each layer",
}


@pytest.mark.parametrize("family", SHAPES)
def test_every_shape_of_decoder_gives_the_same_bits(family, tmp_path):
    folder = saved(build(family), tmp_path / "model")
    assert same(streamed(folder), in_memory(folder))


@pytest.mark.slow
@pytest.mark.parametrize("family", families())
def test_every_family_that_can_be_calibrated_can_be_streamed(family, tmp_path):
    try:
        folder = saved(build(family), tmp_path / "model")
        whole = in_memory(folder)
    except (EngineError, LookupError, RuntimeError, ValueError) as error:
        pytest.skip(f"not loaded as a causal language model, or refused: {error}")
    assert same(streamed(folder), whole)


def test_many_shards_and_any_type_and_metric(tmp_path):
    folder = saved(small_model().to(torch.bfloat16), tmp_path / "model", max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 3
    config = replace(QUICK, metrics=("cka_linear_unbiased", "frobenius"), chunk_tokens=7)
    for dtype in ("auto", torch.float32):
        assert same(streamed(folder, config, dtype=dtype), in_memory(folder, config, dtype=dtype))


@pytest.mark.parametrize("family", ["qwen2_moe", "gpt_oss", "deepseek_v3"])
def test_moments_of_routed_tokens_and_the_norm_predictor_too(family, tmp_path):
    folder = saved(build(family), tmp_path / "model")
    config = replace(QUICK, routed_moments=True, norm_predictor=True)
    artifact = streamed(folder, config)
    assert {"routed_cross", "norm_predictor"} <= set(artifact.manifest.fields)
    assert same(artifact, in_memory(folder, config))


def test_fused_experts_on_disk_are_read_as_well(tmp_path):
    model = small_model()
    apart = saved(model, tmp_path / "apart")
    fused = saved(model, tmp_path / "fused", save_original_format=False)
    assert "model.layers.0.mlp.experts.gate_up_proj" in load_file(fused / "model.safetensors")
    assert "model.layers.0.mlp.experts.0.gate_proj.weight" in load_file(apart / "model.safetensors")
    assert same(streamed(apart), in_memory(apart))
    assert same(streamed(fused), in_memory(fused))


def test_the_same_seed_gives_the_same_artifact_and_another_does_not(tmp_path):
    folder = saved(small_model(), tmp_path / "model")
    first, again, other = (streamed(folder, replace(QUICK, seed=seed)) for seed in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)


def test_hidden_states_in_mapped_files_change_nothing(tmp_path, monkeypatch):
    folder = saved(small_model(), tmp_path / "model")
    monkeypatch.setattr("sere.calibration.stream.memory.IN_MEMORY", 0)
    files = set()

    def look(_):
        files.update(path.name for path in (tmp_path / "work").glob("output-*"))

    assert same(streamed(folder, work=tmp_path / "work", progress=look), in_memory(folder))
    assert len([name for name in files if name.startswith("output-input")]) == QUICK.batches


def test_no_layer_is_held_beside_another(tmp_path, monkeypatch):
    folder = saved(small_model(), tmp_path / "model")
    held = []

    def watch(self, prefix, *, own=False, load=Weights.load):
        load(self, prefix, own=own)
        names = [name for name, value in self.model.named_parameters() if not value.is_meta]
        held.append({name.split(".")[2] for name in names if ".layers." in name})

    monkeypatch.setattr(Weights, "load", watch)
    streamed(folder)
    assert max(len(layers) for layers in held) == 1
    assert set().union(*held) == {"0", "1"}
