"""Run one MoE block on random rows, up to its experts, and see what its router does."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from sere.engines.transformers.layers import MoELayer, parameter_names

ROUTERS: Final = ("gate", "router")
"""Names of the router in its block."""

_ROWS: Final = 64
_HOOKS: Final = (
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
)


@dataclass(frozen=True, eq=False)
class Output:
    """A tensor that some module of the block returned, and that may be logits.

    Attributes:
        module: The module.
        place: Place in what it returned, or None if it was all.
        value: The tensor, floating, shape [N, C] with at least a column for every expert.

    """

    module: nn.Module
    place: int | None
    value: Tensor


@dataclass(eq=False)
class Probe:
    """What a trial run showed.

    Attributes:
        outputs: Candidates for the logits; those of the router first, outer modules before inner.
        choice: Ids and weights that the experts were given, both [N, K]; None if they were not reached.

    """

    outputs: list[Output] = field(default_factory=list)
    choice: tuple[Tensor, Tensor] | None = None


class _Reached(Exception):  # noqa: N818
    """The experts were reached: nothing after that is of interest, and they would cost most."""


@torch.no_grad()
def probe(block: nn.Module, layer: MoELayer, dtype: torch.dtype, device: torch.device) -> Probe:
    """Run ``block``, the parent of the layer's experts, on random rows; the experts do not run.

    Hooks that others put on the block's modules do not see this run. Where the block is a whole
    decoder layer, its router runs alone.

    Args:
        block: The block.
        layer: The layer.
        dtype: Of the hidden states.
        device: Of the hidden states.

    Raises:
        Exception: Whatever the block raises.

    """
    seen = Probe()
    rows = torch.randn(_ROWS, _width(block), generator=torch.Generator().manual_seed(0))
    rows[_ROWS // 2 :] *= 4  # transforms differ little where logits are small
    rows = rows.to(device, dtype)
    with _without_hooks(block):
        modules = _router_first(block, layer.module)
        for module in modules:
            module.register_forward_hook(_recorder(seen, layer.num_experts))
        if _takes_rows_alone(block):
            layer.module.register_forward_pre_hook(_stopper(seen, layer.module), with_kwargs=True)
            with suppress(_Reached):
                block.forward(rows.unsqueeze(0))
        else:
            _keep_choice(seen, modules[0](rows))
    seen.outputs.sort(key=lambda output: modules.index(output.module))
    return seen


def _width(block: nn.Module) -> int:
    """Width of the rows: what the router's first matrix takes."""
    for name, parameter in block.named_parameters():
        if name.split(".")[0] in ROUTERS and parameter.ndim == 2 and parameter.is_floating_point():
            return int(parameter.shape[1])
    raise LookupError("there is no gate or router with a weight matrix")


def _router_first(block: nn.Module, experts: nn.Module) -> list[nn.Module]:
    inside = set(experts.modules())
    named = [(name, module) for name, module in block.named_modules() if name and module not in inside]
    named.sort(key=lambda item: (item[0].split(".")[0] not in ROUTERS, item[0].count(".")))
    return [module for _, module in named]


def _takes_rows_alone(block: nn.Module) -> bool:
    parameters = list(inspect.signature(type(block).forward).parameters.values())[2:]
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return not needed and "attention_mask" not in parameter_names(block)


def _recorder(seen: Probe, num_experts: int) -> Any:
    def record(module: nn.Module, _: Any, output: Any) -> None:
        several = isinstance(output, (tuple, list))
        for place, value in enumerate(output if several else (output,)):
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim < 2:
                continue
            if value.shape[:-1].numel() == _ROWS and value.shape[-1] >= num_experts:
                seen.outputs.append(Output(module, place if several else None, value.flatten(0, -2).clone()))

    return record


def _stopper(seen: Probe, experts: nn.Module) -> Any:
    names = parameter_names(experts)

    def stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        seen.choice = values[names[1]], values[names[2]]
        raise _Reached

    return stop


def _keep_choice(seen: Probe, output: tuple[Tensor, ...]) -> None:
    """Take ids and weights out of what a router returned: whole numbers, and floats of the same shape."""
    ids = next(value for value in output if not value.is_floating_point())
    weights = next(value for value in output if value.is_floating_point() and value.shape == ids.shape)
    seen.choice = ids, weights


@contextmanager
def _without_hooks(block: nn.Module) -> Iterator[None]:
    """Put all hooks aside, and take away those added meanwhile."""
    aside = [(module, name, module.__dict__[name]) for module in block.modules() for name in _HOOKS]
    try:
        for module, name, _ in aside:
            module.__dict__[name] = OrderedDict()
        yield
    finally:
        for module, name, hooks in aside:
            module.__dict__[name] = hooks
