"""What a benchmark is of: a model, its artifact, and the variants that are served."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sere.artifact import Artifact, ModelRecord
from sere.bench.served.record import NONE, UNMODIFIED
from sere.engines.vllm.settings import Settings
from sere.errors import PolicyError

_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_PLUGIN_GROUPS = tuple(
    f"vllm.{kind}_plugins" for kind in ("general", "platform", "io_processor", "stat_logger", "endpoint")
)
_NAMED = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Subject:
    """What is benchmarked.

    Attributes:
        source: Folder or Hub name of the model.
        variants: ``unmodified``, ``none``, then the policies in their short forms.
        model: Its record, None if it is not known.
        stand_in: What it is in words, if its weights are random; else empty.
        place: Folder or Hub name of the artifact; None looks beside the weights.
        artifact: Hash of the artifact, None if there is none.
        metric: Similarity to serve; None for the artifact's default.

    """

    source: str
    variants: tuple[str, ...]
    model: ModelRecord | None = None
    stand_in: str = ""
    place: str | None = None
    artifact: str | None = None
    metric: str | None = None

    @classmethod
    def of(
        cls,
        source: str,
        policies: Sequence[str],
        *,
        place: str | None = None,
        metric: str | None = None,
        model: ModelRecord | None = None,
        stand_in: str = "",
    ) -> Subject:
        """Check everything that can be checked without a server.

        Args:
            source: Folder or Hub name of the model.
            policies: Short forms, or operating points of the artifact; the two controls are added.
            place: As :attr:`place`.
            metric: As :attr:`metric`.
            model: As :attr:`model`; taken from the artifact if None.
            stand_in: As :attr:`stand_in`.

        Raises:
            PolicyError: If a policy is malformed or given twice.
            EngineError: If a policy needs an artifact and there is none.
            ArtifactError: If the artifact is unusable, or of another model.

        """
        wanted = [policy for policy in policies if policy not in (UNMODIFIED, NONE)]
        if len(set(wanted)) < len(wanted):
            twice = next(policy for policy in wanted if wanted.count(policy) > 1)
            raise PolicyError(f"policy {twice!r} is given twice. Give each once.")
        found = None
        if place is not None:
            place = str(Path(place).resolve()) if Path(place).exists() else place
            found = Artifact.from_pretrained(place)
        elif Path(source).is_dir() and Artifact.exists_in(source):
            found = Artifact.from_pretrained(source)
        for policy in wanted:
            Settings.read(_settings(policy, place, metric)).resolve(source)
        if found is not None and model is not None:
            found.check_model(model)
        return cls(
            source=source,
            variants=(UNMODIFIED, NONE, *wanted),
            model=model if model is not None or found is None else found.model,
            stand_in=stand_in,
            place=place,
            artifact=None if found is None else found.hash,
            metric=metric,
        )

    def settings(self, variant: str) -> dict[str, Any]:
        """Give what is put under the plugin's key to serve ``variant``."""
        return _settings(variant, self.place, self.metric)

    def identity(self) -> dict[str, Any]:
        """Give what all loads of a benchmark must have in common."""
        return {
            "model": self.stand_in or self.source,
            "checkpoint": None if self.stand_in else _checkpoint(Path(self.source)),
            "artifact": self.artifact,
            "metric": self.metric,
        }


def _settings(policy: str, place: str | None, metric: str | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"policy": policy}
    if policy != NONE and place is not None:
        settings["artifact"] = place
    if policy != NONE and metric is not None:
        settings["metric"] = metric
    return settings


def _checkpoint(folder: Path) -> str | None:
    """Hash of a checkpoint's configuration and of its files' names and sizes; None for a Hub name."""
    if not folder.is_dir():
        return None
    files = sorted((path.name, path.stat().st_size) for path in folder.iterdir() if path.is_file())
    weights = [[name, size] for name, size in files if name.endswith((".safetensors", ".bin", ".json"))]
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    digest.update(json.dumps(weights).encode())
    return digest.hexdigest()


def environment() -> dict[str, str]:
    """Give the settings of vLLM in the environment, without secrets."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if (name.startswith("VLLM_") or name in _NAMED) and not any(word in name for word in _SECRET)
    }


def plugins_without_sere() -> str:
    """Value of ``VLLM_PLUGINS`` that loads all plugins but this one."""
    asked = os.environ.get("VLLM_PLUGINS")
    if asked is not None:
        names = asked.split(",")
    else:
        found = (importlib.metadata.entry_points(group=group) for group in _PLUGIN_GROUPS)
        names = [entry.name for entries in found for entry in entries]
    return ",".join(dict.fromkeys(name for name in names if name != "sere"))
