"""Follow ``generate``: where decoding begins, which tokens end it, and which kernel it would choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn

from sere.engines.transformers.rows import Generation

_DECODE: Final = "_optimize_model_for_decode"
_TOKENS: Final = "_prepare_special_tokens"


def follow(model: nn.Module, current: Callable[[], Generation]) -> None:
    """Shadow two methods that ``generate`` calls on ``model``, until :func:`unfollow`.

    ``current`` gives the calling thread's generation.

    ``generate`` decodes inside a context that, off the CPU, switches ``grouped_mm`` experts to
    ``batched_mm``. That one gathers the weights of every slot, so fewer distinct experts save nothing
    there: the context here leaves the implementation alone. It also marks the steps past the prompt.
    """
    if hasattr(model, _DECODE):
        setattr(model, _DECODE, _keep_grouped(current))
    prepare = getattr(model, _TOKENS, None)
    if prepare is not None:

        def prepared(generation_config: Any, *args: Any, **kwargs: Any) -> Any:
            result = prepare(generation_config, *args, **kwargs)
            current().ends = _ends(generation_config)
            return result

        setattr(model, _TOKENS, prepared)


def unfollow(model: nn.Module) -> None:
    """Undo :func:`follow`."""
    for name in (_DECODE, _TOKENS):
        model.__dict__.pop(name, None)


def gathers(model: nn.Module) -> bool:
    """Whether the user chose the implementation that gathers every slot's weights."""
    read = getattr(model, "get_experts_implementation", None)
    chosen: dict[str, str | None] = read() if read else {}
    return "batched_mm" in chosen.values()


def _keep_grouped(current: Callable[[], Generation]) -> Any:
    @contextmanager
    def context() -> Iterator[None]:
        generation = current()
        generation.decoding = True
        try:
            yield
        finally:
            generation.decoding = False

    return context


def _ends(config: Any) -> torch.Tensor | None:
    ends = getattr(config, "_eos_token_tensor", None)
    if ends is None:  # nothing is padded without an end token
        return None
    pad = getattr(config, "_pad_token_tensor", None)
    tokens = [ends.reshape(-1)] if pad is None else [ends.reshape(-1), pad.reshape(-1)]
    return torch.cat([token.to(ends.device) for token in tokens])
