"""The entry point that vLLM calls in every process; it only leaves small doors open.

vLLM swallows errors of plugins that fail to import and runs the rest without them, so nothing here may
fail in a vLLM that does not use the plugin. A configuration that does use it fails loudly instead: first
in the process that the user started, where it is checked as the engine's configuration is made.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any, Final

KEY: Final = "sere"
"""Key in ``additional_config`` that turns the plugin on."""

_MARK: Final = "_sere_door"
_log = logging.getLogger("sere")


def register() -> None:
    """Open the doors: engine configuration, model loading, and three remote calls on every worker.

    Safe to call any number of times, in any process, with or without the key.
    """
    try:
        _open_doors()
    except Exception as error:  # a vLLM that does not use the plugin must go on
        _log.warning(
            "sere: this vLLM has not the seams that the plugin needs (%s: %s); it cannot be used here.",
            type(error).__name__,
            error,
        )


def uses(config: Any) -> bool:
    """Whether the user wrote the key; ``config`` has an ``additional_config``."""
    extra = getattr(config, "additional_config", None)
    return isinstance(extra, dict) and KEY in extra


def _open_doors() -> None:
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if not WorkerWrapperBase.__dict__.get(_MARK):
        WorkerWrapperBase.load_model = _load_model
        WorkerWrapperBase.compile_or_warm_up_model = _warm_up
        WorkerWrapperBase.sere_counters = _remote("counters")
        WorkerWrapperBase.sere_reset = _remote("reset")
        WorkerWrapperBase.sere_switch = _remote("switch")
        setattr(WorkerWrapperBase, _MARK, True)
    # Present in the process that the user started, because its constructor calls this function.
    arguments = sys.modules.get("vllm.engine.arg_utils")
    if arguments is not None and not arguments.EngineArgs.__dict__.get(_MARK):
        make = arguments.EngineArgs.create_engine_config
        arguments.EngineArgs.create_engine_config = _checked(make)
        setattr(arguments.EngineArgs, _MARK, True)


def _checked(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not uses(self):
            return make(self, *args, **kwargs)
        from sere.engines.vllm.frontend import prepare

        config = make(self, *args, **kwargs)
        prepare(self.additional_config[KEY], config)
        return config

    return create_engine_config


def _load_model(self: Any, *args: Any, **kwargs: Any) -> Any:
    if not uses(self.vllm_config):
        return self.worker.load_model(*args, **kwargs)
    from sere.engines.vllm.loading import load_rerouted

    raw = self.vllm_config.additional_config[KEY]
    return load_rerouted(self.worker, raw, lambda: self.worker.load_model(*args, **kwargs))


def _warm_up(self: Any, *args: Any, **kwargs: Any) -> Any:
    result = self.worker.compile_or_warm_up_model(*args, **kwargs)
    if uses(self.vllm_config):
        from sere.engines.vllm.loading import check_active

        check_active(self.worker.sere_engine)
    return result


def _remote(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        from sere.engines.vllm import remote

        return getattr(remote, name)(self.worker, *args, **kwargs)

    call.__name__ = f"sere_{name}"
    return call
