"""What a server says when it starts: which layers are re-routed, which not and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sere.engines.vllm.loading import Engine


def banner(engine: Engine, model: str) -> str:
    """Write a few lines for the server's log."""
    resolved, layers = engine.resolved, engine.survey.layers
    shapes = sorted({(layer.num_experts, layer.top_k) for layer in layers})
    shape = ", ".join(f"{experts} experts top-{slots}" for experts, slots in shapes)
    lines = [
        f"sere: re-routing {len(layers)} MoE layers of {model} ({shape}): "
        f"{_numbers([layer.index for layer in layers])}",
        f"sere: policy {resolved.label}, {_phase(engine)}",
    ]
    reasons: dict[str, list[str]] = {}
    for name, reason in engine.survey.skipped.items():
        reasons.setdefault(reason, []).append(name)
    lines += [f"sere: not re-routed: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    if resolved.artifact is not None:
        artifact = resolved.artifact
        metric = resolved.metric or artifact.default_metric
        lines.append(f"sere: artifact of {artifact.model.id}, {metric}, hash {artifact.hash[:12]}")
    lines += [f"sere: {text}" for text in _expectation(engine)]
    if engine.resolved.guard is not None:
        lines.append(f"sere: guard: {engine.resolved.guard}")
    return "\n".join(lines)


def _phase(engine: Engine) -> str:
    if engine.resolved.policy.phase == "all":
        return "prompt and decode rows are re-routed"
    return "decode rows are re-routed, prompt rows are kept as routed"


def _expectation(engine: Engine) -> list[str]:
    policy, layers = engine.resolved.policy, engine.survey.layers
    inert = sorted({reason for layer in layers if (reason := policy.inert(layer.top_k))})
    if inert:
        return [f"policy {policy.name} changes nothing here: {'; '.join(inert)}"]
    layer = layers[0]
    size = getattr(policy.select, "top_s", None)
    if size is None:
        return []
    before = uniform_distinct(layer.num_experts, layer.top_k, 16)
    after = uniform_distinct(layer.num_experts, size, 16)
    return [
        f"expected distinct experts a layer at 16 decode rows: {before:.0f} without, at least {after:.0f} "
        "with the policy, if routing is uniform (real routing is narrower; see the sere_* counters)"
    ]


def uniform_distinct(experts: int, slots: int, rows: int) -> float:
    """Distinct experts that ``rows`` rows of ``slots`` different, uniformly drawn experts name, on average.

    Each expert is missed by one row with probability ``1 - slots / experts``.
    """
    return experts * (1 - (1 - slots / experts) ** rows)


def _numbers(indices: list[int]) -> str:
    parts: list[str] = []
    start = previous = indices[0]
    for index in [*indices[1:], -2]:
        if index == previous + 1:
            previous = index
            continue
        parts.append(str(start) if start == previous else f"{start} to {previous}")
        start = previous = index
    return "layers " + ", ".join(parts)
