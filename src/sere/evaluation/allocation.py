"""How many slots each layer may keep: what fewer cost a layer, and the best spread of a total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sere.engines.transformers import MoELayer, find_layers
from sere.engines.transformers.rerouting import device_of
from sere.errors import EngineError, PolicyError
from sere.routing import LayerStatistics, RoutingBatch, make_policy


@torch.no_grad()
def top_k_losses(model: Any, rows: int = 512, seed: int = 0) -> dict[int, tuple[float, ...]]:
    """Measure what plain top-k costs each layer on random inputs; no text is needed.

    A layer's block runs on rows drawn from N(0, 1); then its experts run again with each row's k heaviest
    slots, renormalised. The loss of k is the Frobenius norm of the difference to all K slots, over the norm
    of what all K give; the paper leaves the second norm out.

    Args:
        model: A Transformers model with routed experts, in evaluation mode, without a policy.
        rows: Rows drawn for each layer.
        seed: Seed of the draw, the same for all layers.

    Returns:
        Number of the decoder layer to its losses for k = 1 to K; the last is 0.

    Raises:
        EngineError: If a layer's block cannot be run on rows alone.

    Source: LExI, arXiv 2509.02753, algorithm 1.

    """
    return {layer.index: _losses(model, layer, rows, seed) for layer in find_layers(model)}


def allocate(losses: Sequence[Sequence[float]], total: int) -> tuple[int, ...]:
    """Spread ``total`` slots over the layers so that the sum of losses is least.

    Exact, by dynamic programming over the layers. Of equal sums, the one with fewer slots in earlier layers.

    Args:
        losses: For every layer, the loss of keeping 1, 2, ... K slots.
        total: Slots of all layers together, at least one a layer.

    Returns:
        Slots of every layer, summing to ``total``.

    Raises:
        PolicyError: If there are fewer slots than layers, or more than all layers have.

    """
    most = sum(map(len, losses))
    if not losses or not len(losses) <= total <= most:
        raise PolicyError(f"{total} slots cannot be spread over {len(losses)} layers of {most} in all.")
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for layer in losses:
        grown: dict[int, tuple[float, tuple[int, ...]]] = {}
        for used, (cost, chosen) in best.items():
            for slots, loss in enumerate(layer, start=1):
                option = (cost + loss, (*chosen, slots))
                if used + slots <= total and option < grown.get(used + slots, (float("inf"), ())):
                    grown[used + slots] = option
        best = grown
    return best[total][1]


def _losses(model: Any, layer: MoELayer, rows: int, seed: int) -> tuple[float, ...]:
    hidden, ids, weights = _routing(model, layer, rows, seed)
    batch = RoutingBatch(ids, weights, layer.num_experts)
    whole: Tensor = layer.module.forward(hidden, ids, weights)
    losses = []
    for slots in range(1, layer.top_k):
        routes = make_policy("top_k", k=slots, phase="all").route(batch, LayerStatistics())
        part: Tensor = layer.module.forward(hidden, routes.ids, routes.weights)
        losses.append(float((part - whole).float().norm() / whole.float().norm()))
    return (*losses, 0.0)


def _routing(model: Any, layer: MoELayer, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Catch what a layer's experts are given on random rows: hidden states, ids and weights."""
    block = model.get_submodule(layer.name.rpartition(".")[0])
    seen: list[Tensor] = []

    def keep(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen[:] = [*args, *kwargs.values()][:3]

    width = model.config.get_text_config().hidden_size
    drawn = torch.randn(1, rows, width, generator=torch.Generator().manual_seed(seed))
    handle = layer.module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        block(drawn.to(device_of(layer.module), model.dtype))
    except (TypeError, RuntimeError, ValueError, AttributeError) as error:
        raise EngineError(
            f"the block of {layer.name} does not run on rows alone: {error}. Choose the slots of each layer "
            "by hand."
        ) from error
    finally:
        handle.remove()
    hidden, ids, weights = seen
    return hidden.flatten(0, -2), ids.flatten(0, -2), weights.flatten(0, -2)
