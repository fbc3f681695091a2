"""Follow vLLM's model runners, old and new, to know each step's row kinds.

A request decodes if its prompt has been computed and at most one known token is left to compute. Rows of
speculative drafts being verified belong to such a request. A request that was preempted computes its own
output again: those rows are many and known, so they are prefill. The last token of a prompt that was found
in the prefix cache is a prompt token: prefill.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from sere.engines.vllm.rows import RowKinds
from sere.errors import EngineError


def follow(runner: Any, rows: RowKinds) -> str:
    """Fill ``rows`` before every forward of ``runner`` from now on; return the runner's kind.

    Raises:
        EngineError: If the runner has not the methods of a known model runner.

    """
    read: Callable[..., None]
    if hasattr(runner, "prepare_inputs") and hasattr(runner, "req_states"):
        name, read, kind = "prepare_inputs", _read_new, "V2"
    elif hasattr(runner, "_prepare_inputs") and hasattr(runner, "input_batch"):
        name, read, kind = "_prepare_inputs", _read_old, "V1"
    else:
        raise EngineError(
            f"{type(runner).__name__} is no model runner that sere knows. See the versions in docs/vllm.md."
        )
    if not hasattr(runner, "_dummy_run"):
        raise EngineError(f"{type(runner).__name__} has no _dummy_run. See the versions in docs/vllm.md.")
    setattr(runner, name, _after(getattr(runner, name), functools.partial(read, runner, rows)))
    runner._dummy_run = _before(runner._dummy_run, rows.clear)
    return kind


def _read_old(runner: Any, rows: RowKinds, _: Any, __: Any, lengths: Any) -> None:
    batch = runner.input_batch
    count = batch.num_reqs
    computed = np.asarray(batch.num_computed_tokens_cpu[:count])
    known = np.asarray(batch.num_tokens_no_spec[:count])
    decode = (computed >= np.asarray(batch.num_prompt_tokens[:count])) & (known - computed <= 1)
    rows.fill(np.asarray(lengths, dtype=np.int32), decode)


def _read_new(_: Any, rows: RowKinds, result: Any, *__: Any, **___: Any) -> None:
    count = result.num_reqs
    lengths = np.asarray(result.num_scheduled_tokens[:count], dtype=np.int32)
    rows.fill(lengths, ~np.asarray(result.is_prefilling_np[:count]), int(result.num_tokens))


def _after(method: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        then(result, *args, **kwargs)
        return result

    return call


def _before(method: Callable[..., Any], first: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        first()
        return method(*args, **kwargs)

    return call
