"""Record what a model's experts are given, and give it to them again, to find out about an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from sere.engines.transformers.describe import describe
from sere.engines.transformers.handle import MARK, Handle
from sere.engines.transformers.layers import MoELayer, find_layers, parameter_names, unwrap
from sere.engines.transformers.routes import Call, Routes
from sere.errors import EngineError


@contextmanager
def recording(model: nn.Module) -> Iterator[Routes]:
    """Keep the routing of every layer and forward, before and after a policy that is applied already.

    Two tensors of [T, K] numbers a layer and forward are copied to the CPU, twice over: it is a tool for
    short runs. Works on eager models; compiled ones run without it.

    Args:
        model: A Transformers model, under a policy or not. Apply the policy first.

    Raises:
        EngineError: If the model has no layers to record.

    """
    root = unwrap(model)
    handle = _handle(root)
    routes = Routes(describe(root).fingerprint, "unmodified" if handle is None else handle.label)
    hooks = []
    try:
        for layer in find_layers(root):
            routes.layers[layer.name] = []
            chosen: list[tuple[Tensor, Tensor]] = []
            before, after = _watch(layer, chosen, routes.layers[layer.name])
            hooks.append(layer.module.register_forward_pre_hook(before, with_kwargs=True, prepend=True))
            hooks.append(layer.module.register_forward_pre_hook(after, with_kwargs=True))
        yield routes
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def replaying(model: nn.Module, routes: Routes) -> Iterator[None]:
    """Give every layer the recorded routing, forward by forward, whatever its router says.

    The same tokens in the same steps then give the very logits of the recorded run, bit for bit on the same
    machine; other tokens or a changed layer show what the routing alone does.

    Args:
        model: The model that was recorded, without a policy.
        routes: The record.

    Raises:
        EngineError: If a policy is applied, the record is of another model, or a forward has other rows
            than the recorded one or comes after the last.

    """
    root = unwrap(model)
    if (handle := _handle(root)) is not None:
        raise EngineError(
            f"{handle.label} is applied to this model. Call sere.remove(model) before replaying."
        )
    layers = find_layers(root)
    if describe(root).fingerprint != routes.fingerprint or [x.name for x in layers] != list(routes.layers):
        raise EngineError(
            "the routes were recorded of another model, or by other names of its layers. Load that one."
        )
    hooks = []
    try:
        for layer in layers:
            hook = _give(layer, iter(routes.layers[layer.name]))
            hooks.append(layer.module.register_forward_pre_hook(hook, with_kwargs=True))
        yield
    finally:
        for each in hooks:
            each.remove()


def _handle(root: nn.Module) -> Handle | None:
    return next((part.__dict__[MARK] for part in root.modules() if MARK in part.__dict__), None)


def _watch(layer: MoELayer, chosen: list[tuple[Tensor, Tensor]], calls: list[Call]) -> tuple[Any, Any]:
    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        chosen[:] = [_routing(layer, args, kwargs)]

    def after(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append(Call(*chosen.pop(), *_routing(layer, args, kwargs)))

    return before, after


def _routing(layer: MoELayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Copy ids and weights to the CPU, both [T, K]."""
    names = parameter_names(layer.module)[:3]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    ids, weights = (given[name].detach().flatten(0, -2).to("cpu", copy=True) for name in names[1:])
    return ids, weights


def _give(layer: MoELayer, calls: Iterator[Call]) -> Any:
    names = parameter_names(layer.module)[:3]

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        old = [given[name] for name in names[1:]]
        call = next(calls, None)
        if call is None or call.ids.numel() != old[0].numel():
            seen = "no more steps" if call is None else f"{len(call.ids)} rows"
            raise EngineError(
                f"{layer.name} runs {old[0].shape[:-1].numel()} rows where {seen} were recorded. Feed the "
                "same tokens in the same steps as when it was recorded."
            )
        new = {
            name: value.to(was.device, was.dtype).view_as(was)
            for name, was, value in zip(names[1:], old, (call.ids, call.weights), strict=True)
        }
        positional = [new.get(name, value) for name, value in zip(names, args, strict=False)]
        named = {name: new.get(name, value) for name, value in kwargs.items()}
        return (*positional, *args[3:]), named

    return hook
