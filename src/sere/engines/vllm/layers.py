"""Find the MoE layers of a loaded vLLM model, or say why one cannot be re-routed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sere.errors import EngineError

IN_KERNEL = (
    "its kernel ({kernel}) routes inside itself. Choose one that does not: start vLLM with "
    "--moe-backend triton (or cutlass for quantised weights), or serve without sere"
)

DRAFT = 'it belongs to a draft model ("drafts": true re-routes those too)'


@dataclass(frozen=True, eq=False)
class ServedLayer:
    """One MoE layer that can be re-routed.

    Attributes:
        name: Its name in vLLM, ``model.layers.3.mlp.experts``.
        index: Number of its decoder layer.
        runner: vLLM's runner of the layer.
        num_experts: E, logical routed experts.
        top_k: K, routed slots of a row.
        draft: Whether it belongs to a draft model or an MTP module.

    """

    name: str
    index: int
    runner: Any
    num_experts: int
    top_k: int
    draft: bool = False


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes:
        layers: Layers to re-route, in model order.
        skipped: Other MoE layers, with the reason.

    """

    layers: tuple[ServedLayer, ...]
    skipped: dict[str, str] = field(default_factory=dict)


def survey(model: Any, config: Any, drafts: bool = False) -> Survey:
    """Look at every MoE layer of ``model`` and of what else was loaded with it.

    Args:
        model: The loaded model, without drafts.
        config: vLLM's configuration, whose compilation part lists all MoE layers by name.
        drafts: Whether layers of draft models and MTP modules are re-routed too.

    Raises:
        EngineError: If no layer can be re-routed, or one routes inside its kernel.

    """
    from vllm.model_executor.layers.fused_moe.runner.moe_runner_interface import MoERunnerInterface

    layers: list[ServedLayer] = []
    skipped: dict[str, str] = {}
    own = {module.layer_name: module for module in model.modules() if isinstance(module, MoERunnerInterface)}
    known = config.compilation_config.static_forward_context
    other = {name: module for name, module in known.items() if isinstance(module, MoERunnerInterface)}
    for name, runner in {**own, **other}.items():
        draft = name not in own
        reason = DRAFT if draft and not drafts else obstacle(runner, config)
        if reason is None:
            moe = runner.moe_config
            experts, slots = int(moe.num_logical_experts), int(moe.experts_per_token)
            layers.append(ServedLayer(name, layer_index(name), runner, experts, slots, draft))
        else:
            skipped[name] = reason
    in_kernel = {name: why for name, why in skipped.items() if "routes inside itself" in why}
    if in_kernel:
        name, why = next(iter(in_kernel.items()))
        raise EngineError(f"{len(in_kernel)} MoE layers cannot be re-routed, {name} first: {why}.")
    if all(layer.draft for layer in layers):
        raise EngineError(_nothing(model, skipped))
    return Survey(tuple(sorted(layers, key=lambda layer: layer.index)), skipped)


def obstacle(runner: Any, config: Any) -> str | None:
    """Say why a layer cannot be re-routed, or None."""
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter

    router, moe = runner.router, runner.moe_config
    if runner.is_monolithic:
        kernel = getattr(runner._quant_method, "experts_cls", None) or type(runner._quant_method)
        return IN_KERNEL.format(kernel=getattr(kernel, "__name__", kernel))
    plain = isinstance(router, BaseRouter) and type(router)._select_experts is BaseRouter._select_experts
    if not plain:
        return f"its router ({type(router).__name__}) does not select experts the common way"
    if config.parallel_config.use_ubatching:
        return "micro-batches split its rows (start vLLM without --enable-dbo)"
    if config.cache_config.kv_sharing_fast_prefill:
        return "late layers see only some of the step's rows (start vLLM without --kv-sharing-fast-prefill)"
    if runner.do_naive_dispatch_combine or moe.is_sequence_parallel or moe.pcp_size > 1:
        return (
            "it sees the rows of other ranks (with data or sequence parallel experts, choose an "
            "--all2all-backend that routes before it dispatches)"
        )
    if moe.experts_per_token < 2:
        return "it routes each row to one expert only"
    return None


def layer_index(name: str) -> int:
    """Return the decoder layer's number: the first number in a module's name."""
    return int(next((part for part in name.split(".") if part.isdecimal()), "0"))


def _nothing(model: Any, skipped: dict[str, str]) -> str:
    if skipped:
        reasons = "; ".join(sorted(set(skipped.values())))
        return f"no MoE layer of {type(model).__name__} can be re-routed: {reasons}. Serve it without sere."
    return (
        f"{type(model).__name__} has no MoE layer, so there is nothing to re-route. Take the sere key out of "
        "--additional-config, or serve a Mixture-of-Experts model."
    )
