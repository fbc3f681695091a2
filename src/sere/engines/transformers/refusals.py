"""Why a model cannot be re-routed, in words that help."""

from __future__ import annotations

from typing import Final

from torch import nn

FAMILIES: Final = {
    "diffusion_gemma": "it denoises whole blocks of tokens, so no step decodes one row a sequence",
    "doge": "each token picks experts through product keys and runs rank-one experts, not K slots of a layer",
    "jetmoe": "its experts receive rows already sorted by expert, after the router's ids are gone",
    "llama4": "it multiplies each expert's input by the router's score and runs all experts on all tokens",
    "nllb-moe": "it is an encoder-decoder that passes dense masks over all experts",
    "switch_transformers": "it routes each token to one expert only",
    "vitpose_backbone": "it is a vision model that picks experts by dataset",
}
"""Families with experts of another form: model type to reason."""


def family_refused(model: nn.Module) -> bool:
    """Whether the family of the whole model is one of :data:`FAMILIES`."""
    return any(kind.removesuffix("_text") in FAMILIES for kind in model_types(model)[:1])


def refusal(model: nn.Module, skipped: dict[str, str]) -> str:
    """Compose the message for a model without a layer that can be re-routed.

    Args:
        model: The model.
        skipped: Experts modules that were found, with the reason against each.

    """
    kinds = model_types(model)
    label = f"{type(model).__name__} ({', '.join(kinds)})" if kinds else type(model).__name__
    for kind in kinds:
        reason = FAMILIES.get(kind.removesuffix("_text"))
        if reason:
            return f"{label} cannot be re-routed: {reason}. Serve it without sere."
    if skipped:
        reasons = "; ".join(sorted(set(skipped.values())))
        return (
            f"{label} cannot be re-routed: {reasons}. Load it in an unquantised, unsplit form, or serve it "
            "without sere."
        )
    return f"{label} is dense: it has no layer with routed experts. Pass a Mixture-of-Experts model."


def model_types(model: nn.Module) -> tuple[str, ...]:
    """Model types of the configuration and of the configurations inside it, outermost first."""
    found: dict[str, None] = {}
    for module in model.modules():
        kind = getattr(getattr(module, "config", None), "model_type", None)
        if isinstance(kind, str) and kind:
            found[kind] = None
    return tuple(found)
