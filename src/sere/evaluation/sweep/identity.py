"""What a measured point depends on, as hashes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import sere

SAMPLES = 256
"""Values looked at in each weight."""
_MEASURING = "company decoding exact_match fidelity greedy grouped proxy stepwise"
_CODE = (
    "routing/**/*.py",
    "engines/transformers/*.py",
    *(
        f"evaluation/{name}.py"
        for name in (
            "company",
            "decoding",
            "exact_match",
            "fidelity",
            "greedy",
            "grouped",
            "proxy",
            "stepwise",
        )
    ),
)


def model_hash(model: Any) -> str:
    """Hash of a model's configuration and of :data:`SAMPLES` values spread over each of its weights.

    A retrained or differently loaded checkpoint differs in it; reading all of a large model would take
    longer than measuring a point.
    """
    digest = hashlib.sha256(json.dumps(_settings(model), sort_keys=True, default=str).encode())
    for name, weight in model.state_dict().items():
        flat = weight.detach().reshape(-1)
        if flat.numel() == 0 or flat.is_meta:
            continue
        picked = flat[torch.linspace(0, flat.numel() - 1, min(SAMPLES, flat.numel())).long().to(flat.device)]
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(picked.double().cpu().numpy().tobytes())
    return digest.hexdigest()


def _settings(model: Any) -> dict[str, Any]:
    """Return the configuration without where it was loaded from."""
    settings: dict[str, Any] = model.config.to_dict()
    return {name: value for name, value in settings.items() if not name.startswith("_")}


@cache
def code_hash() -> str:
    """Hash of the code that routes and measures, and of the libraries that compute."""
    folder = Path(sere.__file__).parent
    digest = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(folder.glob(pattern)):
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    for package in ("torch", "transformers"):
        digest.update(importlib.metadata.version(package).encode())
    return digest.hexdigest()


def tokens_hash(ids: Tensor) -> str:
    """Hash of token ids and their shape."""
    return hashlib.sha256(f"{tuple(ids.shape)}".encode() + ids.cpu().numpy().tobytes()).hexdigest()


def key_of(**fields: object) -> str:
    """Hash of named values: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:32]
