"""Describe a model to an artifact."""

from __future__ import annotations

from torch import nn

from sere.artifact import LayerRecord, ModelRecord, Place
from sere.engines.transformers.layers import find_layers, unwrap
from sere.engines.transformers.refusals import model_types
from sere.engines.transformers.rerouting import device_of
from sere.provenance import device_name


def describe(model: nn.Module) -> ModelRecord:
    """Return the identity of ``model`` that :meth:`sere.artifact.Artifact.check_model` compares.

    The hidden size is that of the text decoder where a model has several parts.

    Raises:
        EngineError: If the model has no layer that can be re-routed.

    """
    root = unwrap(model)
    layers = find_layers(root)
    model = configured(root)
    config = getattr(model, "config", None)
    kinds = model_types(root)
    return ModelRecord.describe(
        id=str(getattr(config, "_name_or_path", "") or type(model).__name__),
        revision=getattr(config, "_commit_hash", None),
        architecture=kinds[0] if kinds else type(model).__name__,
        hidden_size=_hidden_size(config),
        layers=[
            LayerRecord(name=layer.name, index=layer.index, num_experts=layer.num_experts, top_k=layer.top_k)
            for layer in layers
        ],
    )


def place(model: nn.Module) -> Place:
    """Return the device that the first MoE layer's experts lie on, and the type of their weights.

    Raises:
        EngineError: If the model has no layer that can be re-routed.

    """
    module = find_layers(model)[0].module
    weight = next((each for each in module.parameters() if each.is_floating_point()), None)
    dtype = getattr(configured(unwrap(model)), "dtype", None) if weight is None else weight.dtype
    return Place(device_name(device_of(module)), str(dtype).removeprefix("torch."))


def configured(model: nn.Module) -> nn.Module:
    """Return the outermost module with a configuration: the model inside data parallelism, say."""
    return next((module for module in model.modules() if hasattr(module, "config")), model)


def _hidden_size(config: object) -> int:
    text = getattr(config, "get_text_config", lambda: config)()
    for name in ("hidden_size", "d_model", "n_embd"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 0
