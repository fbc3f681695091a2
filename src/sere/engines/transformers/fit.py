"""Find the scores that explain what a router chose in a trial run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from sere.engines.transformers.layers import MoELayer
from sere.engines.transformers.probe import Output, Probe
from sere.engines.transformers.scores import PerExpert, ScoreSource, transforms

_GROUPS: Final = ("num_group", "n_group")


def fit(block: nn.Module, layer: MoELayer, seen: Probe) -> ScoreSource | str:
    """Find the source that explains ids and weights of a trial run, or say what cannot be explained.

    The slots' weights must be the source's up to a factor a row. The ids must be the best by its order,
    or the best of the groups that they lie in if the router chooses among groups first. Of several
    that would do, the one with the least error is taken.

    Args:
        block: Parent of the experts.
        layer: The layer.
        seen: The trial run, which must have reached the experts.

    """
    assert seen.choice is not None  # noqa: S101
    ids, weights = (value.flatten(0, -2) for value in seen.choice)
    reason = f"nothing that the router of {type(block).__name__} returns gives the weights of its slots"
    for output in seen.outputs:
        logits = output.value
        tolerance = max(1e-5, 2 * max(torch.finfo(weights.dtype).eps, torch.finfo(logits.dtype).eps))
        tensors = list(_per_expert(block, layer, logits.shape[-1]))
        error = partial(weight_error, logits=logits, ids=ids, weights=weights)
        source, least = _least(_weightings(block, output, tensors), error)
        if least > tolerance:
            continue
        for groups in dict.fromkeys((1, _groups(block))):
            error = partial(order_error, logits=logits, ids=ids, weights=weights, groups=groups)
            ordered, least = _least(_orders(source, tensors), error)
            if least <= tolerance:
                return ordered
        reason = f"the router of {type(block).__name__} does not choose the experts that it scores highest"
    return reason


def weight_error(source: ScoreSource, logits: Tensor, ids: Tensor, weights: Tensor) -> float:
    """Greatest difference between a slot's share of its row's weights and of its row's scores."""
    columns = logits.shape[-1]
    valid = (ids >= 0) & (ids < columns) & (weights != 0)
    given = weights.float().masked_fill(~valid, 0)
    scored = source.scores(logits).weight.gather(1, ids.clamp(0, columns - 1).long()).masked_fill(~valid, 0)
    shares = (part / part.abs().sum(1, keepdim=True) for part in (given, scored))
    difference = (next(shares) - next(shares))[valid.any(1)].abs()
    return float(difference.nan_to_num(float("inf")).max()) if difference.numel() else float("inf")


def order_error(source: ScoreSource, logits: Tensor, ids: Tensor, weights: Tensor, groups: int = 1) -> float:
    """How far, relative to its row, an expert that was not chosen is above one that was; 0 if none is.

    Only experts in groups of which some expert was chosen count; ``groups`` is the number of groups.
    Rows with slots of weight zero do not: these may name a stand-in.
    """
    order = source.scores(logits).order
    rows, columns = order.shape
    outside = (ids < 0) | (ids >= columns)
    index = torch.where(outside, columns, ids).long()
    chosen = torch.zeros(rows, columns + 1, dtype=torch.bool, device=ids.device).scatter_(1, index, True)
    chosen = chosen[:, :-1]
    rivals = chosen.view(rows, groups, -1).any(2, keepdim=True).expand(-1, -1, columns // groups)
    best_left = order.masked_fill(chosen | ~rivals.reshape(rows, columns), float("-inf")).amax(1)
    worst_taken = order.masked_fill(~chosen, float("inf")).amin(1)
    above = (best_left - worst_taken).clamp(min=0) / order.abs().amax(1).clamp(min=1e-30)
    above = above[(weights != 0).all(1)]
    return float(above.nan_to_num(float("inf")).max()) if above.numel() else float("inf")


def _least(
    sources: Iterable[ScoreSource], error: Callable[[ScoreSource], float]
) -> tuple[ScoreSource, float]:
    """Return the first of those with the least error, and that error."""
    return min(((source, error(source)) for source in sources), key=lambda pair: pair[1])


def _weightings(block: nn.Module, output: Output, tensors: list[PerExpert]) -> Iterator[ScoreSource]:
    for transform in transforms(block):
        for scale in (None, *tensors):
            yield ScoreSource(output.module, output.place, transform, scale)


def _orders(source: ScoreSource, tensors: list[PerExpert]) -> Iterator[ScoreSource]:
    """Try selection biases before none: one that is zero, or very small, cannot be told from none."""
    biases = [each for each in tensors if "bias" in each.name and each.name != "bias"]
    others = [each for each in tensors if each not in biases]
    for bias in (*biases, None, *others):
        for raw_order in (False, True):
            yield replace(source, bias=bias, raw_order=raw_order)


def _per_expert(block: nn.Module, layer: MoELayer, columns: int) -> Iterator[PerExpert]:
    """Tensors of the block, outside of its experts, with one number for every column of the logits."""
    inside = set(layer.module.modules())
    for module in block.modules():
        if module in inside:
            continue
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if tensor.numel() == columns and tensor.is_floating_point() and not tensor.is_meta:
                yield PerExpert(module, name)


def _groups(block: nn.Module) -> int:
    """Return the number of groups that the router chooses among, or 1."""
    for module in block.modules():
        for name in _GROUPS:
            value = getattr(module, name, None)
            if isinstance(value, int) and value > 1:
                return value
    return 1
