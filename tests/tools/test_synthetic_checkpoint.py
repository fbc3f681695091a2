"""A checkpoint of random weights loads whole, repeats under its seed, and has the size asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from tools.synthetic_checkpoint import GB, Shape, layers_for, shards, write
from transformers import AutoModelForCausalLM, AutoTokenizer

TINY = Shape(layers=2, experts=4, slots=2, width=32, inner=16, heads=4, key_heads=2, head=8, vocabulary=2048)


def weights(folder) -> dict[str, torch.Tensor]:
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    return found


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def test_transformers_loads_it_whole_with_a_tokenizer_that_fits(tmp_path):
    total = write(tmp_path / "model", TINY, shard=20_000)
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.dtype == torch.bfloat16
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer("one text", return_tensors="pt")["input_ids"]
    assert model(ids).logits.isfinite().all()
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    held = weights(tmp_path / "model")
    assert index["metadata"]["total_size"] == total == sum(value.nbytes for value in held.values())
    assert set(index["weight_map"]) == set(held)
    assert len(set(index["weight_map"].values())) > 3


def test_a_seed_gives_the_same_weights_in_any_shards_and_another_does_not(tmp_path):
    for name, seed, shard in (("a", 0, 20_000), ("b", 0, 10**6), ("c", 1, 20_000)):
        write(tmp_path / name, TINY, seed=seed, shard=shard)
    first, again, other = (weights(tmp_path / name) for name in "abc")
    assert same(first, again)
    assert not same(first, other)
    gates = [first[f"model.layers.{layer}.mlp.experts.0.gate_proj.weight"] for layer in (0, 1)]
    assert not torch.equal(*gates)
    assert first["model.embed_tokens.weight"].float().std() == pytest.approx(0.02, rel=0.02)


def test_layers_reach_a_size_and_one_less_does_not():
    for shape, gigabytes in ((Shape(), 14), (Shape(experts=32, vocabulary=32768), 1.5)):
        layers = layers_for(shape, gigabytes)
        size = [
            2 * sum(torch.Size(one).numel() for _, one in replace(shape, layers=count).tensors()) / GB
            for count in (layers - 1, layers)
        ]
        assert size[0] < gigabytes <= size[1]


def test_no_shard_holds_more_than_it_may():
    dealt = shards(TINY, 5_000)
    sizes = [[2 * torch.Size(one).numel() for _, one in shard] for shard in dealt]
    assert all(sum(each) <= 5_000 or len(each) == 1 for each in sizes)
    assert [tensor for shard in dealt for tensor in shard] == list(TINY.tensors())


def test_what_is_there_is_not_overwritten_and_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    with pytest.raises(SystemExit, match="is there already"):
        write(tmp_path / "model", TINY)
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr("tools.synthetic_checkpoint.shutil.disk_usage", lambda _: usage)
    with pytest.raises(SystemExit, match="Choose another disk"):
        write(tmp_path / "other", TINY)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_command_says_what_it_wrote(tmp_path):
    options = ["--layers", "1", "--experts", "4", "--slots", "2", "--width", "64", "--inner", "16"]
    done = subprocess.run(
        [
            sys.executable,
            "tools/synthetic_checkpoint.py",
            str(tmp_path / "model"),
            *options,
            "--vocabulary",
            "2048",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 layers, 0.00 GB" in done.stdout
    assert len(weights(tmp_path / "model")) == 9 + 4 * 3 + 3
