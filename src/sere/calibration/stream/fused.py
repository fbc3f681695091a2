"""Fill a fused experts tensor expert by expert.

Transformers stacks the experts of a checkpoint that keeps them apart, then joins gate and up: for a while it
holds the layer twice or more. Where that is all its mapping does, each expert is copied into place instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sere.errors import CalibrationError

if TYPE_CHECKING:
    from sere.calibration.stream.weights import Weights


@dataclass(frozen=True)
class Plan:
    """One fused tensor.

    Attributes:
        target: Its name in the model.
        groups: Checkpoint names of the experts in their order, one group for each part that is joined.

    """

    target: str
    groups: tuple[tuple[str, ...], ...]

    @property
    def keys(self) -> list[str]:
        """All checkpoint names."""
        return [key for group in self.groups for key in group]


def plans(weights: Weights, targets: Iterable[str]) -> Iterator[Plan]:
    """Yield those of ``targets`` that are experts stacked, and perhaps joined, and nothing else."""
    by_pattern = _fusing(weights.loading)
    for target in targets:
        sources = weights.sources[target]
        found = {pattern: by_pattern.get(pattern or "") for _, pattern in sources}
        order = next(iter(found.values()))
        wanted = weights.wanted.get(target)
        if order is None or any(each is not order for each in found.values()) or wanted is None:
            continue
        if _kept_apart(weights.loading, target) or len(wanted.shape) < 3:
            continue
        groups = tuple(tuple(key for key, pattern in sources if pattern == part) for part in order)
        if all(len(group) == wanted.shape[0] for group in groups):
            yield Plan(target, groups)


def fuse(weights: Weights, plan: Plan, slices: dict[str, Any]) -> None:
    """Make the tensor of a plan and set it in the model.

    Parts are joined along the experts' first dimension, as Transformers joins them along the stack's second.
    """
    wanted = weights.wanted[plan.target]
    value = torch.empty(wanted.shape, dtype=wanted.dtype, device=weights.loading.device_map[""])
    start = 0
    for group in plan.groups:
        width, *rest = slices[group[0]].get_shape()
        if start + width > wanted.shape[1] or rest != list(wanted.shape[2:]):
            raise CalibrationError(
                f"{group[0]} has shape {(width, *rest)}, which does not fit into {plan.target} of shape "
                f"{tuple(wanted.shape)}. Get a checkpoint whose config.json belongs to its weights."
            )
        for expert, key in enumerate(group):
            value[expert, start : start + width].copy_(slices[key][...])
        start += width
    owner, _, last = plan.target.rpartition(".")
    setattr(weights.model.get_submodule(owner), last, nn.Parameter(value, requires_grad=False))


def _fusing(loading: Any) -> dict[str, list[str]]:
    """Parts in their order, by the pattern of each, of every mapping that stacks and joins only."""
    from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter

    found: dict[str, list[str]] = {}
    for entry in loading.weight_mapping or []:
        if not isinstance(entry, WeightConverter) or entry.quantization_operation is not None:
            continue
        kinds = [(type(op), getattr(op, "dim", None)) for op in entry.operations]
        stacked = kinds == [(MergeModulelist, 0)] and len(entry.source_patterns) == 1
        joined = kinds == [(MergeModulelist, 0), (Concatenate, 1)]
        if (stacked or joined) and len(entry.target_patterns) == 1:
            found.update(dict.fromkeys(entry.source_patterns, entry.source_patterns))
    return found


def _kept_apart(loading: Any, target: str) -> bool:
    """Whether Transformers gives ``target`` a type of its own."""
    return any(re.search(pattern.replace("*", ".*"), target) for pattern in loading.dtype_plan or {})
