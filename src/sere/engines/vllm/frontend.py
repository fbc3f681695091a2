"""The process that the user started: check the configuration there, and publish the workers' counters."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from sere.engines.vllm import seams
from sere.engines.vllm.metrics import Publisher
from sere.engines.vllm.settings import Settings

_MARK: Final = "_sere_metrics"
_TIMEOUT_S: Final = 30.0
_log = logging.getLogger("sere")


def prepare(raw: object, config: Any) -> None:
    """Check what the user wrote, before any process is started for it.

    Args:
        raw: What is under the key.
        config: The finished configuration of the engine.

    Raises:
        SereError: If the server must not start; see :func:`~sere.engines.vllm.loading.load_rerouted`.

    """
    seams.check()
    Settings.read(raw).resolve(config.model_config.model, config.model_config.revision)
    publish_with_stats()


def publish_with_stats() -> None:
    """Let a server's engine client publish the counters whenever it logs its statistics."""
    from vllm.v1.engine.async_llm import AsyncLLM

    if AsyncLLM.__dict__.get(_MARK):
        return
    AsyncLLM.do_log_stats = _and_publish(AsyncLLM.do_log_stats)
    setattr(AsyncLLM, _MARK, True)


def _and_publish(log_stats: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(log_stats)
    async def do_log_stats(self: Any) -> None:
        await log_stats(self)
        # Of several front ends, one asks the workers.
        if "sere" not in (self.vllm_config.additional_config or {}):
            return
        if getattr(self.engine_core, "client_index", 0) != 0:
            return
        publisher = self.__dict__.get("_sere_publisher")
        if publisher is None:
            publisher = self.__dict__["_sere_publisher"] = Publisher()
        try:
            publisher.update(await asyncio.wait_for(_ask(self.engine_core), _TIMEOUT_S))
        except Exception as error:  # statistics must never take a server down
            _log.warning(
                "sere: the workers' counters could not be read (%s: %s)", type(error).__name__, error
            )

    return do_log_stats


async def _ask(engine_core: Any) -> list[list[dict[str, Any]]]:
    """Counters of every worker of every engine."""
    arguments = ("collective_rpc", "sere_counters", None, (), None)
    if hasattr(engine_core, "call_utility_all_async"):
        answers: list[list[dict[str, Any]]] = await engine_core.call_utility_all_async(*arguments)
        return answers
    return [await engine_core.collective_rpc_async("sere_counters")]
