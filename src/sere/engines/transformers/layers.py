"""Find the MoE layers of a Transformers model, or say why it has none that can be re-routed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from torch import nn

from sere.engines.transformers.refusals import family_refused, refusal
from sere.errors import EngineError

SIGNATURES: Final = (
    ("hidden_states", "top_k_index", "top_k_weights"),
    ("hidden_states", "router_indices", "routing_weights"),
)
"""Argument names of the experts modules that share one meaning: rows, ids [T, K], weights [T, K]."""

_CACHES: Final = ("cache", "past_key_values")
_BRANCHES: Final = {
    "vision": "it runs image tokens, which are never decoded",
    "mtp": "it drafts tokens for the decoder",
}
"""Part of a module path to the reason against the experts below it."""
_TOP_K: Final = ("top_k", "num_experts_per_tok", "top_k_experts", "moe_topk", "moe_top_k")


@dataclass(frozen=True, eq=False)
class MoELayer:
    """One re-routable MoE layer.

    Attributes:
        name: Module path of the experts module, such as ``model.layers.3.mlp.experts``.
        index: Number of the decoder layer that it belongs to.
        module: The experts module.
        num_experts: E, the number of routed experts.
        top_k: K, the slots of a row.

    """

    name: str
    index: int
    module: nn.Module
    num_experts: int
    top_k: int


@dataclass(frozen=True)
class Survey:
    """What was found in a model.

    Attributes:
        layers: Layers that can be re-routed, in model order.
        skipped: Experts modules that cannot, with the reason.
        models: Modules whose forward sees a whole step, outermost first: for each layer all of its
            ancestors that take tokens and a cache.

    """

    layers: tuple[MoELayer, ...]
    skipped: dict[str, str] = field(default_factory=dict)
    models: tuple[nn.Module, ...] = ()


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside ``torch.compile``'s wrapper, or ``model`` itself."""
    inner = getattr(model, "_orig_mod", model)
    if not isinstance(inner, nn.Module):
        raise EngineError(
            f"expected a Transformers model, got {type(model).__name__}. Pass the loaded model."
        )
    return inner


def find_layers(model: nn.Module) -> tuple[MoELayer, ...]:
    """List the MoE layers of ``model`` that can be re-routed, in model order.

    Raises:
        EngineError: If there is none; the message gives the reason: a dense model, a family that is
            not supported, an encoder, or quantised or parallel experts that route inside a kernel.

    """
    return survey(model).layers


def survey(model: nn.Module) -> Survey:
    """Look at every module of ``model``; see :class:`Survey`.

    Raises:
        EngineError: As :func:`find_layers`.

    """
    root = unwrap(model)
    layers: list[MoELayer] = []
    skipped: dict[str, str] = {}
    models: dict[int, nn.Module] = {}
    for name, module in root.named_modules():
        if not looks_like_experts(module):
            continue
        ancestors = list(_ancestors(root, name))
        reason = _obstacle(name, module, ancestors)
        if reason:
            skipped[name] = reason
            continue
        layers.append(_layer(name, module, ancestors))
        models.update({id(parent): parent for parent in ancestors if _sees_steps(parent)})
    if not layers or family_refused(root):
        raise EngineError(refusal(root, skipped))
    _one_decoder(layers)
    return Survey(tuple(layers), skipped, tuple(models.values()))


def parameter_names(module: nn.Module) -> tuple[str, ...]:
    """Names of the arguments of a module's own forward, whatever was patched onto the instance."""
    return tuple(inspect.signature(type(module).forward).parameters)[1:]


def looks_like_experts(module: nn.Module) -> bool:
    """Whether the module holds the routed experts of a layer, in a form that is known or not."""
    named = type(module).__name__.endswith("Experts") and "Shared" not in type(module).__name__
    return named or parameter_names(module)[:3] in SIGNATURES


def _obstacle(name: str, module: nn.Module, ancestors: list[nn.Module]) -> str | None:
    if parameter_names(module)[:3] not in SIGNATURES:
        taken = ", ".join(parameter_names(module)) or "nothing"
        return f"{type(module).__name__}.forward takes ({taken}) instead of ids and weights of K slots a row"
    if getattr(module, "_is_expert_parallel", False):
        return "its experts are split over processes, each of which sees only its own"
    for part, reason in _BRANCHES.items():
        if any(piece.startswith(part) for piece in name.split(".")):
            return reason
    owner = next((parent for parent in reversed(ancestors) if _is_model(parent)), None)
    if owner is not None and not _sees_steps(owner):
        return f"{type(owner).__name__} keeps no cache, so it has no decode phase"
    return None


def _one_decoder(layers: list[MoELayer]) -> None:
    numbers = [layer.index for layer in layers]
    if len(set(numbers)) < len(numbers):
        parts = " and ".join(dict.fromkeys(layer.name.split(".")[0] for layer in layers))
        raise EngineError(
            f"the model has several decoders ({parts}), or numbers layers twice. Pass one of them, such as "
            f"model.{layers[0].name.split('.')[0]}."
        )


def _layer(name: str, module: nn.Module, ancestors: list[nn.Module]) -> MoELayer:
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.)", name)
    return MoELayer(
        name, int(numbers[-1]) if numbers else 0, module, _experts(name, module), _top_k(name, ancestors)
    )


def _experts(name: str, module: nn.Module) -> int:
    # Some families append experts without weights (identity, skip) and count only part of them.
    for attribute in ("num_routed_experts", "num_experts"):
        value = getattr(module, attribute, None)
        if isinstance(value, int) and value > 0:
            return value
    raise EngineError(f"{name}: {type(module).__name__} has no num_experts. Report this model family.")


def _top_k(name: str, ancestors: list[nn.Module]) -> int:
    block = ancestors[-1]
    routers = [child for key, child in block.named_children() if key in ("gate", "router")]
    configs = [getattr(owner, "config", None) for owner in (*routers, *reversed(ancestors))]
    for owner in (*routers, block, *configs):
        for attribute in _TOP_K:
            value = getattr(owner, attribute, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    raise EngineError(f"{name}: the number of experts per token was not found. Report this model family.")


def _ancestors(root: nn.Module, name: str) -> Iterator[nn.Module]:
    module = root
    yield module
    for part in name.split(".")[:-1] if name else ():
        module = getattr(module, part)
        yield module


def _is_model(module: nn.Module) -> bool:
    return hasattr(module, "config") and hasattr(module, "base_model_prefix")


def _sees_steps(module: nn.Module) -> bool:
    names = parameter_names(module)
    tokens = "input_ids" in names or "inputs_embeds" in names
    return _is_model(module) and tokens and any(cache in names for cache in _CACHES)
