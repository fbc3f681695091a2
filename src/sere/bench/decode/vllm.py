"""Decoding in vLLM, offline: the step of a batch that is decoding and nothing else.

The unmodified engine runs without the plugin. On the CPU, and without captured graphs, one further engine
serves all other variants and is switched between them; captured graphs hold their policy, so there each
variant has an engine of its own. All of them share the memory: a model that does not fit twice belongs
into ``sere bench serve``, which gives each variant the machine for itself.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from torch import Tensor

from sere.bench.decode.config import DecodeConfig
from sere.bench.decode.record import Counted, Turn
from sere.bench.served.record import NONE, UNMODIFIED
from sere.bench.subject import Subject
from sere.errors import EngineError
from sere.evaluation.record import LayerExperts

CPU_SHARE, GPU_SHARE = 0.2, 0.9
"""Share of the memory for one engine on the CPU, and for all of them together on a GPU."""


class VllmEngine:
    """Engines in this process, as many as the variants need.

    Args:
        subject: Model, artifact and variants.
        config: Settings.
        options: Further arguments of ``vllm.LLM``, for all engines alike.

    Raises:
        EngineError: If an engine does not start.

    """

    def __init__(self, subject: Subject, config: DecodeConfig, options: Mapping[str, Any]) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # so that a step is a call of ours
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm.platforms import current_platform

        self._subject, self._config, self._options = subject, config, dict(options)
        self._cpu = bool(current_platform.is_cpu())
        self._switched = self._cpu or bool(self._options.get("enforce_eager"))
        held = (UNMODIFIED, NONE) if self._switched else subject.variants
        share = CPU_SHARE if self._cpu else round(GPU_SHARE / len(held), 3)
        self._engines = {variant: self._start(variant, share) for variant in held}

    def _start(self, variant: str, share: float) -> Any:
        from vllm import LLM

        config, most = self._config, max(self._config.batch_sizes)
        settings: dict[str, Any] = {
            "max_model_len": config.length + 1,
            "max_num_seqs": most,
            # All prompts in one step: those after it then only decode.
            "max_num_batched_tokens": max(most * config.prompt_tokens, config.length + 1, 512),
            "enable_prefix_caching": False,
            "gpu_memory_utilization": share,
            "skip_tokenizer_init": True,
            "seed": 0,
            **self._options,
        }
        if variant != UNMODIFIED:
            settings["additional_config"] = {"sere": self._settings(variant)}
        try:
            return LLM(self._subject.source, **settings)
        except Exception as error:  # vLLM and what it loads raise errors of every kind
            first = str(error).strip().splitlines()
            raise EngineError(
                f"vLLM does not start for {variant}: {first[0] if first else type(error).__name__}. Mend "
                "--llm; VLLM_LOGGING_LEVEL=INFO shows more."
            ) from error

    def _settings(self, variant: str) -> dict[str, Any]:
        """Give the plugin's settings; an engine that will be switched has the artifact from the start."""
        settings, subject = self._subject.settings(variant), self._subject
        if self._switched and subject.artifact is not None:
            settings["artifact"] = subject.place or subject.source
            if subject.metric is not None:
                settings["metric"] = subject.metric
        return settings

    def describe(self) -> Mapping[str, Any]:
        """As :meth:`Engine.describe`."""
        dtype = str(self._engines[UNMODIFIED].llm_engine.model_config.dtype)
        return {"device": "cpu" if self._cpu else "cuda", "dtype": dtype.removeprefix("torch.")}

    def warm_up(self, ids: Tensor) -> None:
        """As :meth:`Engine.warm_up`."""
        for variant in self._subject.variants:
            self.time(variant, ids, -1)

    def time(self, variant: str, ids: Tensor, number: int) -> Turn:
        """As :meth:`Engine.time`: the median of the timed steps.

        Every row is sampled at temperature 1 with a seed of its own and of the round.
        """
        llm = self._at(variant)
        seconds = self._decode(llm, ids, number)
        experts = None if variant == UNMODIFIED else _counted(llm)
        return Turn(variant=variant, seconds=seconds, experts=experts)

    def _at(self, variant: str) -> Any:
        """Give the engine that serves ``variant``, switched to it and its counters at zero."""
        if variant == UNMODIFIED:
            return self._engines[UNMODIFIED]
        llm = self._engines[NONE if self._switched else variant]
        if self._switched:
            llm.collective_rpc("sere_switch", args=(variant,))
        llm.collective_rpc("sere_reset")
        return llm

    def _decode(self, llm: Any, ids: Tensor, number: int) -> float:
        from vllm import SamplingParams

        config, engine = self._config, llm.llm_engine
        for row, prompt in enumerate(ids[:, : config.prompt_tokens].tolist()):
            sampling = SamplingParams(
                temperature=1.0,
                seed=1000 * (config.seed + number + 1) + row,
                max_tokens=1 + config.warmup + config.steps,
                ignore_eos=True,
                detokenize=False,
            )
            engine.add_request(f"{number}-{row}", {"prompt_token_ids": prompt}, sampling)
        times = []
        while engine.has_unfinished_requests():
            started = time.perf_counter()
            engine.step()
            times.append(time.perf_counter() - started)
        first = 1 + config.warmup
        timed = times[first : first + config.steps]
        if len(timed) < config.steps:
            raise EngineError(f"vLLM decoded {len(timed)} steps of {config.steps}. Take out speculation.")
        return median(timed)

    def close(self) -> None:
        """As :meth:`Engine.close`."""
        self._engines.clear()
        gc.collect()


def _counted(llm: Any) -> Counted:
    """Read the counters of steps that held decode rows, of the first worker: all see the same rows."""
    found: Mapping[str, Any] = llm.collective_rpc("sere_counters")[0]["layers"]
    layers = {name: _decoding(phases) for name, phases in found.items()}
    total = _sum(list(layers.values()))
    if not total["steps"]:
        raise EngineError("vLLM counted no decoding step. Take counters: false out of the settings.")
    return Counted(
        before=total["experts_before"] / total["steps"],
        after=total["experts_after"] / total["steps"],
        rerouted=total["rerouted"] / total["slots"],
        layers=[
            LayerExperts(
                name=name,
                before=one["experts_before"] / one["steps"],
                after=one["experts_after"] / one["steps"],
            )
            for name, one in layers.items()
            if one["steps"]
        ],
    )


def _decoding(phases: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return _sum([phases["decode"], phases["mixed"]])


def _sum(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {field: sum(part[field] for part in parts) for field in parts[0]}
