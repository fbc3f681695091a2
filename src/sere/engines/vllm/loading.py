"""Load a model in a worker and put the policy on it, or do not let the server start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from sere.artifact import Artifact, LayerRecord, ModelRecord, Place
from sere.engines.vllm import compact, operation, seams, steps
from sere.engines.vllm.banner import banner
from sere.engines.vllm.counting import new_table
from sere.engines.vllm.layers import ServedLayer, Survey, survey
from sere.engines.vllm.rerouting import Rerouting
from sere.engines.vllm.rows import RowKinds
from sere.engines.vllm.scores import check_scores, scorer_of
from sere.engines.vllm.settings import Resolved, Settings
from sere.engines.vllm.veto import no_routing_in_kernels
from sere.errors import ArtifactError, EngineError
from sere.provenance import device_name
from sere.routing import LayerStatistics, Policy

_log = logging.getLogger("sere")


@dataclass(eq=False)
class Engine:
    """What is active in a worker.

    Attributes:
        resolved: Settings, policy and artifact.
        survey: Layers.
        reroutings: The layers' state, in model order.
        rows: Row kinds of the running step.
        graphs: Whether steps are replayed from captured graphs, in which no Python runs.
        rank: The worker's rank.
        active: Short form of the policy that is served.
        enabled: Whether it is on.

    """

    resolved: Resolved
    survey: Survey
    reroutings: tuple[Rerouting, ...]
    rows: RowKinds
    graphs: bool
    rank: int
    active: str
    enabled: bool = True


def load_rerouted(worker: Any, raw: object, load: Callable[[], Any]) -> Any:
    """Load a model through ``load``, re-route it, and keep the :class:`Engine` on the worker.

    Raises:
        EngineError: If this vLLM or the model cannot be re-routed.
        ArtifactError: If the artifact is missing, damaged or of another model.
        PolicyError: If the policy is wrong.

    """
    seams.check()
    config = worker.vllm_config
    model = config.model_config
    resolved = Settings.read(raw).resolve(model.model, model.revision, place_of(worker))
    operation.define()
    with no_routing_in_kernels():
        result = load()
    engine = install(worker, resolved)
    worker.sere_engine = engine
    text = banner(engine, str(config.model_config.model))
    if worker.rank == 0:
        # vLLM configures no logger but its own.
        print(text, flush=True)
    return result


def install(worker: Any, resolved: Resolved) -> Engine:
    """Put the policy on the worker's loaded model."""
    config, runner = worker.vllm_config, worker.model_runner
    found = survey(runner.get_model(), config, resolved.settings.drafts)
    if resolved.artifact is not None:
        check_model(resolved.artifact, config, tuple(layer for layer in found.layers if not layer.draft))
    device = torch.device(runner.device)
    rows = RowKinds(_capacity(config), device)
    graphs = replays_graphs(config, device)
    reroutings = tuple(_rerouting(layer, resolved, rows, graphs, device) for layer in found.layers)
    check_scores(resolved.policy, reroutings)
    steps.follow(runner, rows)
    for layer, rerouting in zip(found.layers, reroutings, strict=True):
        operation.wrap(layer.runner, rerouting)
        if compact.applies(layer.runner):
            compact.put_on(layer.runner, layer.name)
    return Engine(resolved, found, reroutings, rows, graphs, int(worker.rank), resolved.label)


def check_active(engine: Engine) -> None:
    """See that vLLM's warm-up went through every layer's policy; without a warm-up nothing is known.

    Raises:
        EngineError: If a layer ran without its policy, as in code compiled without the plugin.

    """
    idle = [layer.name for layer in engine.reroutings if not layer.calls]
    if engine.rows.dummies and idle:
        raise EngineError(
            f"{len(idle)} of {len(engine.reroutings)} MoE layers ran without the policy, {idle[0]} first. "
            "vLLM may have found code compiled without it: empty its cache (VLLM_CACHE_ROOT), or start it "
            "with VLLM_DISABLE_COMPILE_CACHE=1."
        )


def place_of(worker: Any) -> Place:
    """Name the worker's device and the type of the served weights, as a cost model names them."""
    dtype = str(worker.vllm_config.model_config.dtype).removeprefix("torch.")
    return Place(device_name(torch.device(worker.model_runner.device)), dtype)


def statistics_of(
    artifact: Artifact | None, policy: Policy, metric: str | None, index: int, device: torch.device
) -> LayerStatistics:
    """Return what ``policy`` may know of decoder layer ``index``, on ``device``.

    Raises:
        EngineError: If the policy needs an artifact and there is none.

    """
    if artifact is None:
        if policy.requires:
            raise EngineError(f"policy {policy.name!r} needs an artifact. Start the server with one.")
        return LayerStatistics()
    name = artifact.layer_at(index).name
    return artifact.statistics(name, requires=policy.requires, metric=metric, device=device)


def check_model(artifact: Artifact, config: Any, layers: tuple[ServedLayer, ...]) -> None:
    """See that the artifact is the served model's; with pipeline stages, that it holds this stage's layers.

    Raises:
        ArtifactError: If it is not.

    """
    served = [
        LayerRecord(name=layer.name, index=layer.index, num_experts=layer.num_experts, top_k=layer.top_k)
        for layer in layers
    ]
    record = ModelRecord.describe(
        id=str(config.model_config.model),
        architecture=str(config.model_config.hf_config.model_type),
        hidden_size=int(config.model_config.get_hidden_size()),
        layers=served,
    )
    if config.parallel_config.pipeline_parallel_size == 1:
        artifact.check_model(record)
        return
    for layer in served:
        known = artifact.layer_at(layer.index)
        if (known.num_experts, known.top_k, artifact.model.hidden_size) != (
            layer.num_experts,
            layer.top_k,
            record.hidden_size,
        ):
            raise ArtifactError(
                f"layer {layer.index} has {layer.num_experts} experts, top-{layer.top_k}, in {record.id}, "
                f"and {known.num_experts}, top-{known.top_k}, in the artifact of {artifact.model.id}. "
                "Calibrate the model that you serve, or name its own artifact."
            )


def replays_graphs(config: Any, device: torch.device) -> bool:
    """Whether steps may be replayed from captured graphs."""
    mode = getattr(config.compilation_config, "cudagraph_mode", None)
    return device.type != "cpu" and mode is not None and getattr(mode, "name", "NONE") != "NONE"


def _capacity(config: Any) -> int:
    # Graphs may pad a step past the scheduler's limit.
    largest = getattr(config.compilation_config, "max_cudagraph_capture_size", None) or 0
    return max(int(config.scheduler_config.max_num_batched_tokens), int(largest)) + 64


def _rerouting(
    layer: ServedLayer, resolved: Resolved, rows: RowKinds, graphs: bool, device: torch.device
) -> Rerouting:
    policy = resolved.policy.of_layer(layer.index)
    return Rerouting(
        name=layer.name,
        index=layer.index,
        num_experts=layer.num_experts,
        top_k=layer.top_k,
        rows=rows,
        policy=policy,
        statistics=statistics_of(resolved.artifact, policy, resolved.metric, layer.index, device),
        table=new_table(device) if resolved.settings.counting else None,
        switch=torch.ones((), dtype=torch.bool, device=device) if graphs else None,
        scorer=scorer_of(layer.runner.router),
        guard=resolved.guard,
        guarded=torch.zeros((), dtype=torch.int64, device=device)
        if resolved.guard and resolved.settings.counting
        else None,
    )
