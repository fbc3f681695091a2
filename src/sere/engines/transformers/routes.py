"""Recorded routes: which experts each row of each step and layer was given, as a file."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sere.errors import DataError

FORMAT: Final = "sere-routes"
VERSION: Final = "1"
_PARTS: Final = ("router_ids", "router_weights", "ids", "weights")


@dataclass(frozen=True)
class Call:
    """One forward of one layer; all of shape [T, K], on the CPU.

    Attributes:
        router_ids: Experts as the router chose.
        router_weights: Their weights.
        ids: Experts that ran.
        weights: The weights that they ran with.

    """

    router_ids: Tensor
    router_weights: Tensor
    ids: Tensor
    weights: Tensor

    @property
    def changed(self) -> Tensor:
        """Slots that the policy changed, shape [T, K], bool."""
        return (self.router_ids != self.ids) | (self.router_weights != self.weights)


@dataclass
class Routes:
    """What a model's experts were given while it was recorded.

    Attributes:
        fingerprint: The model's routing shape, as in an artifact.
        policy: What re-routed, or ``unmodified``.
        layers: Calls of every layer in order, by the layer's name.

    """

    fingerprint: str
    policy: str
    layers: dict[str, list[Call]] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all: ``NUMBER.STEP.PART``, layers by number.

        Raises:
            DataError: If it cannot be written.

        """
        path = Path(path)
        tensors = {
            f"{number}.{step}.{part}": getattr(call, part).contiguous()
            for number, calls in enumerate(self.layers.values())
            for step, call in enumerate(calls)
            for part in _PARTS
        }
        steps = {name: len(calls) for name, calls in self.layers.items()}
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "policy": self.policy,
            "steps": json.dumps(steps),
        }
        temporary = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            temporary = Path(name)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(safetensors.torch.save(tensors, metadata))
            temporary.chmod(0o644)
            temporary.replace(path)
        except OSError as error:
            raise DataError(
                f"cannot write {path}: {error.strerror}. Choose a place you may write to, with space left."
            ) from error
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Routes:
        """Read what :meth:`save` wrote.

        Raises:
            DataError: If the file is missing or damaged, or no such file.

        """
        try:
            with safe_open(str(path), framework="pt") as file:
                about = file.metadata() or {}
                if (about.get("format"), about.get("version")) != (FORMAT, VERSION):
                    raise DataError(f"{path} holds no routes of version {VERSION}. Record them again.")
                layers = {
                    name: [
                        Call(*(file.get_tensor(f"{number}.{step}.{part}") for part in _PARTS))
                        for step in range(steps)
                    ]
                    for number, (name, steps) in enumerate(json.loads(about["steps"]).items())
                }
                return cls(about["fingerprint"], about["policy"], layers)
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{path} cannot be read as recorded routes: {error}. Record them again."
            ) from error

    def difference(self, other: Routes) -> tuple[str, int, Tensor] | None:
        """Find where two runs part: layer, step and the slots [T, K] that differ first, or None.

        Steps are looked at in order, and in each the layers in order, as the model runs them.
        """
        steps = max((len(calls) for each in (self, other) for calls in each.layers.values()), default=0)
        for step in range(steps):
            for name in dict.fromkeys((*self.layers, *other.layers)):
                mine, its = (each.layers.get(name, [])[step : step + 1] for each in (self, other))
                if not mine and not its:
                    continue
                if not mine or not its or mine[0].ids.shape != its[0].ids.shape:
                    present = (mine or its)[0].ids
                    return name, step, torch.ones_like(present, dtype=torch.bool)
                apart = (mine[0].ids != its[0].ids) | (mine[0].weights != its[0].weights)
                if apart.any():
                    return name, step, apart
        return None
