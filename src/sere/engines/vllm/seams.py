"""See that the installed vLLM has the seams that the plugin needs, by feature, not by number."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Final

from sere.errors import EngineError

TESTED: Final = ("0.32.0",)
"""Versions that the tests ran on."""

_NEEDED: Final = (
    (
        "vllm.model_executor.layers.fused_moe.router.base_router",
        "BaseRouter",
        ("_compute_routing", "_select_experts"),
    ),
    (
        "vllm.model_executor.layers.fused_moe.runner.moe_runner",
        "MoERunner",
        ("is_monolithic", "do_naive_dispatch_combine"),
    ),
    ("vllm.model_executor.layers.fused_moe.runner.moe_runner_interface", "MoERunnerInterface", ()),
    (
        "vllm.model_executor.layers.fused_moe.modular_kernel",
        "FusedMoEExperts",
        ("is_supported_config", "is_monolithic"),
    ),
    ("vllm.model_executor.layers.fused_moe.config", "FusedMoEConfig", ("is_sequence_parallel", "pcp_size")),
    ("vllm.config", "CacheConfig", ("kv_sharing_fast_prefill",)),
    ("vllm.forward_context", "get_forward_context", ()),
    ("vllm.utils.torch_utils", "direct_register_custom_op", ()),
    ("vllm.utils.torch_utils", "LayerNameType", ()),
    ("vllm.utils.torch_utils", "_encode_layer_name", ()),
)


def missing() -> tuple[str, ...]:
    """Names of the seams that this vLLM has not."""
    absent = []
    for module, name, attributes in _NEEDED:
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            absent.append(f"{module}.{name}")
            continue
        absent += [
            f"{module}.{name}.{attribute}" for attribute in attributes if not hasattr(found, attribute)
        ]
    return tuple(absent)


def version() -> str:
    """Version of the installed vLLM, whatever its distribution is called."""
    try:
        import vllm
    except ImportError:
        return "none"
    return str(getattr(vllm, "__version__", "unknown"))


def check() -> None:
    """Refuse a vLLM without the needed seams.

    Raises:
        EngineError: If a seam is missing.

    """
    absent = missing()
    if absent:
        raise EngineError(
            f"vLLM {version()} lacks what the plugin needs: {', '.join(absent)}. Tested versions: "
            f"{', '.join(TESTED)}. Install one of them, or take the sere key out of --additional-config."
        )
