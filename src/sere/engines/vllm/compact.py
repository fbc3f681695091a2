"""Skip slots of weight zero on the CPU, whose kernel would compute them.

``merge`` and ``top_k`` leave slots that contribute nothing. GPU kernels pay little for them: the expert is
read for other rows anyway. vLLM's CPU kernel is bound by arithmetic there and has no form of a no-op slot
(an id of -1 would write out of bounds). So the slots that count are laid out as rows of one slot each.
Under a policy that changes nothing the call is vLLM's own, also where the router gave weights of zero.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from sere.engines.vllm.operation import running

_WORTH: Final = 0.9
"""Compact only if at most this share of the slots counts; laying out costs a little."""

_LIBRARY: Final[list[Any]] = []


def applies(runner: Any) -> bool:
    """Whether this layer runs on the kernel that :func:`fused_moe` calls."""
    try:
        from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
    except ImportError:
        return False
    kernel = getattr(runner._quant_method, "moe_kernel", None)
    experts = getattr(kernel, "fused_experts", None)
    return isinstance(experts, CPUUnquantizedExperts) and not experts._use_zentorch


def put_on(runner: Any, name: str) -> None:
    """Let the experts of the layer ``name`` skip slots of weight zero, on this one object."""
    from vllm.utils.torch_utils import _encode_layer_name

    define()
    experts = runner._quant_method.moe_kernel.fused_experts

    def apply(
        *,
        output: Tensor,
        hidden_states: Tensor,
        w1: Tensor,
        w2: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        activation: Any,
        apply_router_weight_on_input: bool,
        **_: Any,
    ) -> None:
        torch.ops.sere.cpu_fused_moe(
            output,
            hidden_states,
            w1,
            w2,
            experts.w1_bias,
            experts.w2_bias,
            topk_weights,
            topk_ids,
            activation.value,
            experts.isa,
            apply_router_weight_on_input,
            _encode_layer_name(name),
        )

    experts.apply = apply


def define() -> None:
    """Register ``torch.ops.sere.cpu_fused_moe`` with vLLM's own helper; once a process."""
    if _LIBRARY:
        return
    from vllm.utils.torch_utils import LayerNameType, direct_register_custom_op

    def cpu_fused_moe(out, x, w13, w2, b13, b2, weights, ids, act, isa, skip_weighted, layer_name):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        run = fused_moe if running(layer_name).changes else torch.ops._C.cpu_fused_moe
        run(out, x, w13, w2, b13, b2, weights, ids, skip_weighted, act, isa)

    cpu_fused_moe.__annotations__ = {
        **dict.fromkeys(("out", "x", "w13", "w2", "weights", "ids"), Tensor),
        **dict.fromkeys(("b13", "b2"), Tensor | None),
        **dict.fromkeys(("act", "isa"), str),
        "skip_weighted": bool,
        "layer_name": LayerNameType,
        "return": None,
    }
    make: Any = torch.library.Library
    library = make("sere", "FRAGMENT")
    direct_register_custom_op(
        "cpu_fused_moe", cpu_fused_moe, mutates_args=["out"], fake_impl=lambda *_: None, target_lib=library
    )
    _LIBRARY.append(library)


def fused_moe(
    out: Tensor,
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    b13: Tensor | None,
    b2: Tensor | None,
    weights: Tensor,
    ids: Tensor,
    skip_weighted: bool,
    act: str,
    isa: str,
) -> None:
    """Run vLLM's kernel on the slots that count; arguments as that kernel's.

    With no slot to skip it is that very call. Otherwise each row's slots are summed in float32 after the
    kernel has rounded each to the model's dtype.
    """
    kernel = torch.ops._C.cpu_fused_moe
    flat = weights.flatten()
    slots = flat.nonzero().squeeze(1)
    if skip_weighted or slots.numel() > _WORTH * flat.numel():
        kernel(out, x, w13, w2, b13, b2, weights, ids, skip_weighted, act, isa)
        return
    if slots.numel() == 0:
        out.zero_()
        return
    rows = slots.div(weights.shape[1], rounding_mode="floor")
    part = torch.empty((slots.numel(), out.shape[1]), dtype=out.dtype)
    one_weight, one_id = flat[slots].unsqueeze(1), ids.flatten()[slots].unsqueeze(1)
    kernel(part, x[rows], w13, w2, b13, b2, one_weight, one_id, False, act, isa)
    total = torch.zeros(out.shape, dtype=torch.float32)
    out.copy_(total.index_add_(0, rows, part.float()))
