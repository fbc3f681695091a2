"""The custom operation behind which Python re-routes, opaque to compilers.

Compiled code holds a call with the layer's name; what the layer does is looked up when the call runs, so
layers share compiled code and a policy can be exchanged without compiling again. The name is looked up in the
running engine's own layers, as vLLM does for its own operations: several engines may live in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from sere.engines.vllm.rerouting import Rerouting

_LIBRARY: Final[list[Any]] = []
_OWN: Final = "sere_rerouting"


def define() -> None:
    """Register ``torch.ops.sere.reroute`` with vLLM's own helper; once a process."""
    if _LIBRARY:
        return
    from vllm.utils.torch_utils import LayerNameType, direct_register_custom_op

    def reroute(ids, weights, hidden, logits, layer_name):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return running(layer_name).route(ids, weights, hidden, logits)

    def fake(ids, weights, *_):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN202
        return ids.new_empty(ids.shape), weights.new_empty(weights.shape)

    reroute.__annotations__ = {
        **dict.fromkeys(("ids", "weights", "hidden", "logits"), Tensor),
        "layer_name": LayerNameType,
        "return": tuple[Tensor, Tensor],
    }
    make: Any = torch.library.Library
    library = make("sere", "FRAGMENT")
    direct_register_custom_op("reroute", reroute, fake_impl=fake, target_lib=library)
    _LIBRARY.append(library)


def running(layer_name: Any) -> Rerouting:
    """Return the named layer of the engine whose forward runs; the name may be in vLLM's wrapper."""
    from vllm.forward_context import get_forward_context

    name = layer_name if isinstance(layer_name, str) else layer_name.value
    found: Rerouting = getattr(get_forward_context().no_compile_layers[name], _OWN)
    return found


def wrap(runner: Any, rerouting: Rerouting) -> None:
    """Pass what the router of ``runner`` computes through the operation, on this one object."""
    from vllm.utils.torch_utils import _encode_layer_name

    setattr(runner, _OWN, rerouting)
    router, name = runner.router, rerouting.name
    compute: Callable[..., tuple[Tensor, Tensor]] = router._compute_routing

    def _compute_routing(
        hidden_states: Tensor,
        router_logits: Tensor,
        indices_type: torch.dtype | None,
        *,
        input_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        weights, ids = compute(hidden_states, router_logits, indices_type, input_ids=input_ids)
        ids, weights = torch.ops.sere.reroute(
            ids, weights, hidden_states, router_logits, _encode_layer_name(name)
        )
        return weights, ids

    router._compute_routing = _compute_routing
