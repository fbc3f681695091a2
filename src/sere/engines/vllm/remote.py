"""What a running worker can be asked from outside, through vLLM's ``collective_rpc``.

``collective_rpc("sere_counters")``, ``("sere_reset")`` and ``("sere_switch", args=(policy,))``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sere.artifact import NamedPolicy, named_policy
from sere.engines.vllm.counting import Counts, read
from sere.engines.vllm.loading import Engine, place_of, statistics_of
from sere.engines.vllm.scores import check_scores
from sere.errors import EngineError
from sere.routing import Guard, LayerStatistics, Policy

OFF, ON = "off", "on"


def counters(worker: Any) -> dict[str, Any]:
    """Read this worker's counters; ``guarded`` has the steps that the guard left as routed.

    Returns:
        ``{"rank", "policy", "layers": {name: {phase: {field: int}}}, "guarded": {name: int}}``.

    """
    engine = engine_of(worker)
    layers: dict[str, Counts] = {
        layer.name: read(layer.table) for layer in engine.reroutings if layer.table is not None
    }
    guarded = {layer.name: int(layer.guarded) for layer in engine.reroutings if layer.guarded is not None}
    return {"rank": engine.rank, "policy": state(engine), "layers": layers, "guarded": guarded}


def reset(worker: Any) -> None:
    """Set all counters of this worker to zero."""
    for layer in engine_of(worker).reroutings:
        for counter in (layer.table, layer.guarded):
            if counter is not None:
                counter.zero_()


def switch(worker: Any, policy: str) -> str:
    """Serve with another policy from the next step on, without a restart and without compiling.

    Args:
        worker: The worker.
        policy: ``off`` passes routing through untouched, ``on`` undoes that; anything else is a policy's
            short form or the name of an operating point.

    Returns:
        What is active now.

    Raises:
        EngineError: If steps are replayed from captured graphs and this is more than ``on``, ``off`` or
            another threshold or metric of ``sere`` or other numbers of one that backfills; or if a router
            cannot give what the policy needs.
        PolicyError: If the policy is wrong, or the server's guard is ``auto`` and nothing says for which
            steps the policy pays.

    """
    engine = engine_of(worker)
    if policy in (ON, OFF):
        _turn(engine, policy == ON)
        return state(engine)
    named = named_policy(policy, engine.resolved.artifact)
    chosen, metric = named.policy, named.metric or engine.resolved.metric
    check_scores(chosen, engine.reroutings)
    guard = engine.resolved.guard if engine.graphs else _guard(engine, replace(named, metric=metric), worker)
    device = engine.rows.kinds.device
    artifact = engine.resolved.artifact
    fresh = [
        (own := chosen.of_layer(layer.index), statistics_of(artifact, own, metric, layer.index, device))
        for layer in engine.reroutings
    ]
    if engine.graphs:
        _retable(engine, fresh)
    else:
        for layer, (own, statistics) in zip(engine.reroutings, fresh, strict=True):
            layer.use(own, statistics)
            layer.guard = guard
    engine.active = policy
    _turn(engine, True)
    return state(engine)


def state(engine: Engine) -> str:
    """Short form of what is active, or ``off``."""
    return engine.active if engine.enabled else OFF


def engine_of(worker: Any) -> Engine:
    """Return the worker's :class:`Engine`.

    Raises:
        EngineError: If the server was started without the plugin's key.

    """
    engine = getattr(worker, "sere_engine", None)
    if not isinstance(engine, Engine):
        raise EngineError(
            "this server was started without the sere key. Restart it with --additional-config "
            "'{\"sere\": {...}}'."
        )
    return engine


def _retable(engine: Engine, fresh: list[tuple[Policy, LayerStatistics]]) -> None:
    """Put other numbers, or another threshold or similarity, into the tensors that captured graphs read."""
    prepared = [
        layer.fuse(policy, statistics)
        for layer, (policy, statistics) in zip(engine.reroutings, fresh, strict=True)
    ]
    exchanged = [
        (layer.fused, new)
        for layer, new in zip(engine.reroutings, prepared, strict=True)
        if layer.in_graph and layer.fused is not None and new is not None and layer.fused.fits(new)
    ]
    if len(exchanged) < len(engine.reroutings):
        raise EngineError(
            "this server replays captured graphs, into which the policy is baked: only 'on', 'off', and with "
            "sere the threshold and metric can be switched, and with policies that backfill top_s, size and "
            "floor. Restart it with the other policy, or run with --enforce-eager to switch freely."
        )
    for own, new in exchanged:
        own.take(new)  # type: ignore[arg-type]  # fits: it is of the same class
    for layer, (policy, statistics) in zip(engine.reroutings, fresh, strict=True):
        layer.policy, layer.statistics = policy, statistics


def _turn(engine: Engine, on: bool) -> None:
    engine.enabled = on
    for layer in engine.reroutings:
        layer.turn(on)


def _guard(engine: Engine, named: NamedPolicy, worker: Any) -> Guard | None:
    """Return the guard of a policy that is switched to: its own where the server's is ``auto``."""
    resolved = engine.resolved
    if resolved.settings.guard != "auto":
        return resolved.guard
    return named.guarded_by("auto", resolved.artifact, place_of(worker))
