"""Find the source of every layer's scores, or the reason why it has none."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from sere.engines.transformers.fit import fit
from sere.engines.transformers.layers import MoELayer, Survey, parameter_names
from sere.engines.transformers.probe import probe
from sere.engines.transformers.refusals import model_types
from sere.engines.transformers.rerouting import device_of
from sere.engines.transformers.scores import ScoreSource
from sere.errors import EngineError


def with_scores(root: nn.Module, found: Survey, policy: str) -> tuple[Survey, dict[str, ScoreSource]]:
    """Find the source of every layer's scores; layers that have none move to the skipped ones.

    Each layer's block runs once on a few random rows, without its experts.

    Args:
        root: The model.
        found: Its layers.
        policy: Name of the policy that needs the scores, for the message.

    Returns:
        The survey of layers with scores, and their sources by layer name.

    Raises:
        EngineError: If no layer has scores.

    """
    results = {layer.name: find_source(root, layer) for layer in found.layers}
    sources = {name: result for name, result in results.items() if isinstance(result, ScoreSource)}
    reasons = {name: result for name, result in results.items() if isinstance(result, str)}
    if not sources:
        kinds = ", ".join(model_types(root))
        raise EngineError(
            f"{type(root).__name__} ({kinds}) cannot be re-routed by {policy}, which needs the router's "
            f"scores of all experts: {'; '.join(dict.fromkeys(reasons.values()))}. Choose a policy "
            "that works on the routed slots alone, such as sere."
        )
    layers = tuple(layer for layer in found.layers if layer.name in sources)
    return replace(found, layers=layers, skipped={**found.skipped, **reasons}), sources


def find_source(root: nn.Module, layer: MoELayer) -> ScoreSource | str:
    """Find one layer's source of scores, or say why it has none."""
    block = root.get_submodule(layer.name.rpartition(".")[0])
    dtype = getattr(root, "dtype", None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    try:
        seen = probe(block, layer, dtype, device_of(layer.module))
    except Exception as error:  # a block may fail in any way; its own words are passed on
        more = ", ".join(parameter_names(block)[1:])
        given = f" without {more}" if more else ""
        return f"a trial run of {type(block).__name__}{given} failed ({type(error).__name__}: {error})"
    if seen.choice is None:
        return f"{type(block).__name__} runs something else instead of its experts module"
    return fit(block, layer, seen)
