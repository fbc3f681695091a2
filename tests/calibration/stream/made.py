"""Checkpoints in folders, calibrated from there and in memory."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from sere.artifact import Artifact
from sere.calibration import calibrate
from sere.calibration.stream import calibrate_streamed
from tests.calibration.fakes import QUICK, TEXTS, Characters


def saved(model: nn.Module, folder: Path, **options) -> Path:
    """Write a checkpoint in the layout of its family on the Hub: each expert by itself, mostly."""
    model.save_pretrained(folder, **options)
    return folder


def in_memory(folder: Path, config=QUICK, **options) -> Artifact:
    model = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    return calibrate(model, Characters(), TEXTS, config=config, model_id="x")


def streamed(folder: Path, config=QUICK, **options) -> Artifact:
    return calibrate_streamed(folder, Characters(), TEXTS, config=config, model_id="x", **options)


def same(one: Artifact, other: Artifact) -> bool:
    """Whether two artifacts are the same, bit for bit."""
    equal = all(torch.equal(value, other.tensors[name]) for name, value in one.tensors.items())
    manifests = [each.manifest.model_dump() for each in (one, other)]
    device = {each["calibration"].pop("provenance")["device"] for each in manifests}
    return equal and manifests[0] == manifests[1] and len(device) == 1


def written(out: Path) -> tuple[dict, bytes]:
    """What an artifact's files say, but for when, where and by which command they were made."""
    manifest = json.loads((out / "sere.json").read_text())
    del manifest["calibration"]["provenance"]
    return manifest, (out / "sere.safetensors").read_bytes()
