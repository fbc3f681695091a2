"""The hooks: around each model's forward, before each experts module, and after routers if asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sere.engines.transformers.counters import add_step
from sere.engines.transformers.layers import parameter_names
from sere.engines.transformers.rerouting import Rerouting
from sere.engines.transformers.rows import Generation, row_kinds, token_shape
from sere.engines.transformers.scores import ScoreSource
from sere.errors import EngineError
from sere.routing import PREFILL, UNCHANGED, RoutingBatch

Hook = Callable[..., Any]


@dataclass(eq=False)
class Step:
    """The step that is running in one thread.

    Attributes:
        kinds: Row kinds, shape [T], or None outside of a model's forward.
        shape: Batch size and tokens a row that the kinds were made for.
        owner: The outermost model whose forward is running.
        generation: The surrounding ``generate`` call.
        logits: What a layer's router has computed for its experts, which run next, by the layer's name.

    """

    kinds: Tensor | None = None
    shape: tuple[int, int] | None = None
    owner: nn.Module | None = None
    generation: Generation = field(default_factory=Generation)
    logits: dict[str, Tensor] = field(default_factory=dict)


class Steps(threading.local):
    """The running step of each thread, since several may call one model at the same time.

    Attributes:
        current: This thread's step.

    """

    def __init__(self) -> None:
        self.current = Step()


@dataclass(eq=False)
class Ran:
    """Whether the model's forward has run at all, in any thread."""

    model: bool = False


def step_hooks(model: nn.Module, steps: Steps, ran: Ran) -> tuple[Hook, Hook]:
    """Make hooks before and after ``model``'s forward that keep the step; the outermost model rules."""
    names = parameter_names(model)

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        step = steps.current
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        shape, _ = token_shape(given)
        # Torch leaves the hook after a forward out when that was interrupted from the keyboard.
        outermost = step.owner is None or step.owner is module
        # An inner model is given embeddings that may have other rows, with images put in, say.
        if outermost or (shape is not None and shape != step.shape):
            step.kinds, step.shape = row_kinds(given, step.generation), shape
        if outermost:
            step.owner, ran.model = module, True

    def after(module: nn.Module, *_: Any) -> None:
        step = steps.current
        if step.owner is module:
            step.owner = step.kinds = step.shape = None

    return before, after


def experts_hook(rerouting: Rerouting, steps: Steps) -> Hook:
    """Make the hook before an experts module that rewrites its ids and weights."""
    hidden, *names = parameter_names(rerouting.layer.module)[:3]

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rerouting.called = True
        values = {**dict(zip((hidden, *names), args, strict=False)), **kwargs}
        ids, weights = values[names[0]], values[names[1]]
        new_ids, new_weights = reroute(rerouting, steps.current, ids, weights, values[hidden])
        if new_ids is ids and new_weights is weights:
            return None
        positional = [*args[:1], *(new_ids, new_weights)[: max(len(args) - 1, 0)], *args[3:]]
        named = {
            **kwargs,
            **{n: v for n, v in zip(names, (new_ids, new_weights), strict=True) if n in kwargs},
        }
        return tuple(positional), named

    return before


def router_hook(rerouting: Rerouting, source: ScoreSource, steps: Steps) -> Hook:
    """Make the hook after the module that computes the router's logits; it keeps them for the experts."""

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        steps.current.logits[rerouting.layer.name] = source.pick(output)

    return after


def reroute(
    rerouting: Rerouting, step: Step, ids: Tensor, weights: Tensor, hidden: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Pass one layer's routing through its policy.

    Args:
        rerouting: The layer.
        step: The step.
        ids: Experts, shape [..., K].
        weights: Their weights, shape [..., K].
        hidden: What the experts are given, shape [..., H]. Policies that need the layer's input get
            this; where a layer projects its input first, it is what calibration saw, too.

    Raises:
        EngineError: If the weights are not of the ids' shape, logits of other rows came before, or the layer
            runs outside of the model's forward, as gradient checkpointing makes it, under a policy that
            moves prompts too.

    """
    layer = rerouting.layer
    if ids.shape != weights.shape:
        raise EngineError(
            f"{layer.name} passes ids of shape {tuple(ids.shape)} with weights of shape "
            f"{tuple(weights.shape)}; a weight for each slot is needed. Report this model family, and "
            "serve it without sere."
        )
    if step.kinds is None and rerouting.policy.phase == "all" and torch.is_grad_enabled():
        raise EngineError(
            f"{layer.name} runs outside of the model's forward, where padding cannot be told apart. Turn "
            "gradient checkpointing off (model.gradient_checkpointing_disable()), or use phase=decode."
        )
    flat_ids, flat_weights = ids.flatten(0, -2), weights.flatten(0, -2)
    rows = flat_ids.shape[0]
    kinds = step.kinds
    if kinds is None or kinds.shape[0] != rows:
        # Not a step of the whole batch, as when a block sees only part of the tokens: prompt rows, which
        # phase=decode keeps as routed.
        kinds = torch.full((rows,), PREFILL, device=ids.device)
    kinds, table = kinds.to(ids.device), rerouting.table_on(ids.device)
    logits = step.logits.pop(layer.name, None)
    policy = rerouting.policy_of(kinds)
    needs = policy.needs if policy is not None else frozenset()
    scores = rerouting.scores(logits, rows) if "scores" in needs else None
    fused = rerouting.fused_for(weights)
    if fused is not None and policy is not None:
        new_ids, new_weights = fused.route(flat_ids, flat_weights, kinds, table, scores)
        return new_ids.view_as(ids), new_weights.view_as(weights)
    batch = RoutingBatch(
        flat_ids,
        flat_weights,
        layer.num_experts,
        kinds,
        scores=scores,
        hidden=hidden.flatten(0, -2) if "hidden" in needs and hidden is not None else None,
    )
    inert = policy is None or policy.inert(batch.top_k) is not None
    chosen = UNCHANGED if policy is None else policy
    routes = chosen.route(batch, rerouting.statistics_on(ids.device), redirect_padding=not inert)
    if table is not None:
        add_step(table, batch, routes)
    if inert:
        return ids, weights
    return routes.ids.view_as(ids), routes.weights.view_as(weights)
