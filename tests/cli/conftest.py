"""A small model in a folder, and a way to call the command as a shell would."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from sere.cli import main
from sere.demo.model import bundled_model

Result = subprocess.CompletedProcess[str]
SIZES = {
    "vocab_size": 1024,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 32,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def _with_tokenizer(folder: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((bundled_model() / name).read_bytes())
    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3-MoE checkpoint with the bundled tokenizer."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("small")
    config = Qwen3MoeConfig(**SIZES, num_experts=8, num_experts_per_tok=4, moe_intermediate_size=16)
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    return _with_tokenizer(folder)


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random dense checkpoint."""
    folder = tmp_path_factory.mktemp("dense")
    Qwen3ForCausalLM(Qwen3Config(**SIZES)).save_pretrained(folder)
    return _with_tokenizer(folder)


@pytest.fixture(scope="session")
def broken(small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The small checkpoint with its weights ``truncated``, and ``holed``: one of them missing."""
    folders = {name: tmp_path_factory.mktemp("broken") / name for name in ("truncated", "holed")}
    for folder in folders.values():
        shutil.copytree(small, folder)
    weights = small / "model.safetensors"
    (folders["truncated"] / weights.name).write_bytes(weights.read_bytes()[:5000])
    kept = {name: value for name, value in load_file(weights).items() if name != "model.norm.weight"}
    save_file(kept, folders["holed"] / weights.name, metadata={"format": "pt"})
    return folders


def environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "160", "TERM": "dumb"}


@pytest.fixture(scope="session")
def sere() -> Callable[..., Result]:
    """Run ``sere`` with these arguments in this process: importing torch anew takes most of a short run."""

    def run(*arguments: object, **changes: str) -> Result:
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", ["sere", *map(str, arguments)])
            patch.setattr(signal, "signal", lambda *_: None)  # the test process keeps its own handlers
            for name, value in environment().items():
                patch.setenv(name, value)
            for name, value in changes.items():
                patch.setenv(name, value)
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
        return Result(sys.argv, code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def artifact(small: Path, sere: Callable[..., Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of the small model, made by the command."""
    folder = tmp_path_factory.mktemp("artifacts") / "small"
    done = sere("calibrate", small, "--out", folder, "--sequences", 8, "--length", 32)
    assert done.returncode == 0, done.stderr
    return folder
