"""A server that fails does so as vLLM does: no hang, and the reason in its log."""

from __future__ import annotations

import asyncio

import pytest

from sere.artifact import LayerRecord, ModelRecord
from tests.engines_vllm.artifacts import random_artifact
from tests.engines_vllm.server import OPTIONS, drive, serving

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def test_a_killed_worker_takes_the_server_down_without_a_hang(small_model, tmp_path):
    import psutil

    extra = {"policy": "top_k", "k": 2}
    with serving(small_model / "model", extra, tmp_path / "log", *OPTIONS) as server:
        asyncio.run(drive(server.url, 4, 2, cancel=0))
        workers = [
            child
            for child in psutil.Process(server.process.pid).children(recursive=True)
            if "EngineCore" in child.name() or "EngineCore" in " ".join(child.cmdline())
        ]
        assert workers
        for worker in workers:
            worker.kill()
        load = asyncio.run(drive(server.url, 1, 1, cancel=0))
        assert load.finished == 0
        assert load.failed
        server.process.wait(60)


def test_a_server_with_the_artifact_of_another_model_ends_with_the_reason(small_model, tmp_path):
    layers = tuple(
        LayerRecord(name=f"model.layers.{index}.mlp.experts", index=index, num_experts=8, top_k=2)
        for index in range(2)
    )
    model = ModelRecord.describe(id="another", architecture="qwen3_moe", hidden_size=64, layers=layers)
    random_artifact(model, layers).save_pretrained(tmp_path / "artifact")
    extra, log = {"artifact": str(tmp_path / "artifact")}, tmp_path / "log"
    with (
        pytest.raises(RuntimeError, match="the server ended"),
        serving(small_model / "model", extra, log, *OPTIONS),
    ):
        pass
    assert "this artifact was made for another" in log.read_text()
