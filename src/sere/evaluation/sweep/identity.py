"""What a measured point depends on, as hashes."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sere.artifact import Artifact
from sere.routing import Policy

SAMPLES = 256
"""Values looked at in each weight."""
_MEASURING = (
    "sere.evaluation.company",
    "sere.evaluation.exact_match",
    "sere.evaluation.fidelity",
    "sere.evaluation.stepwise",
)
"""Modules that measure; what they import of ours counts, too, as far as :data:`_COUNTED` goes."""
_COUNTED = re.compile(
    r"sere\.(routing(?!\.recipes)|engines\.transformers\.(layers|sources|fit|probe|scores)$"
    r"|evaluation\.(company|decoding|exact_match|fidelity|greedy|grouped|proxy|stepwise|tokens)$)"
)
_IMPORT = re.compile(r"^from (sere[\w.]*) import", re.MULTILINE)


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


def code_hash(policy: Policy | None) -> str:
    """Hash of the code that measures, that is ``policy``, and of the libraries that compute.

    Recipes are left out: what one builds is in the policy. So a new one leaves all others as they were.
    """
    parts = () if policy is None else tuple(sorted(_modules_of(policy)))
    return _hash_of((*_MEASURING, *parts))


def _modules_of(value: object) -> set[str]:
    """Modules of a dataclass and of those in its fields."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return set()
    inner = (getattr(value, each.name) for each in dataclasses.fields(value))
    return {type(value).__module__}.union(*map(_modules_of, inner))


@cache
def _hash_of(names: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name, code in sorted(sources(names).items()):
        digest.update(f"{name}\0".encode() + code)
    for library in ("torch", "transformers"):
        digest.update(importlib.metadata.version(library).encode())
    return digest.hexdigest()


def sources(names: Iterable[str]) -> dict[str, bytes]:
    """Source of modules and of those of ours that they import, by name.

    A package's own file counts as empty: it only passes on what its modules make.
    """
    seen: dict[str, bytes] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        origin, package = (None, False) if name in seen else _origin(name)
        if origin is None:
            continue
        code = Path(origin).read_bytes()
        seen[name] = b"" if package else code
        waiting += [each for each in _IMPORT.findall(code.decode()) if _COUNTED.match(each)]
    return seen


def _origin(name: str) -> tuple[str | None, bool]:
    """File of a module, and whether it is a package's; the running script is a module too."""
    if name == "__main__":
        return getattr(sys.modules[name], "__file__", None), False
    spec = importlib.util.find_spec(name)
    return (None, False) if spec is None else (spec.origin, spec.submodule_search_locations is not None)


def statistics_hash(artifact: Artifact, requires: frozenset[str], metric: str | None) -> str:
    """Hash of those statistics of all layers that a policy requires.

    So further statistics in an artifact leave points that need none of them as they were.

    Raises:
        ArtifactError: If a required field or the metric is not there.

    """
    digest = hashlib.sha256()
    for layer in artifact.layers:
        found = artifact.statistics(layer.name, requires=requires, metric=metric)
        for field in sorted(requires):
            value: Tensor = getattr(found, field)
            digest.update(f"{layer.name} {field} {tuple(value.shape)} {value.dtype}".encode())
            digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def tokens_hash(ids: Tensor) -> str:
    """Hash of token ids and their shape."""
    return hashlib.sha256(f"{tuple(ids.shape)}".encode() + ids.cpu().numpy().tobytes()).hexdigest()


def key_of(**fields: object) -> str:
    """Hash of named values: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:32]
