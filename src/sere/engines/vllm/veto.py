"""Keep vLLM from picking a kernel that routes inside itself, while a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

REASON = "routing outside of the kernel, which sere needs"


@contextmanager
def no_routing_in_kernels() -> Iterator[None]:
    """Let vLLM's own choice of kernels refuse those that route; it then takes the next of its list."""
    from vllm.model_executor.layers.fused_moe import modular_kernel

    base = modular_kernel.FusedMoEExperts
    original = base.__dict__["is_supported_config"]
    ask = original.__func__

    def is_supported_config(cls: Any, *args: Any, **kwargs: Any) -> tuple[bool, str | None]:
        if cls.is_monolithic():
            return False, f"kernel does not support {REASON}"
        verdict: tuple[bool, str | None] = ask(cls, *args, **kwargs)
        return verdict

    base.is_supported_config = staticmethod(is_supported_config)
    try:
        yield
    finally:
        base.is_supported_config = original
