"""What the user writes under ``additional_config["sere"]``."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pydantic

from sere.artifact import Artifact, NamedPolicy, Place, is_short_form, named_policy
from sere.errors import ArtifactError, EngineError, did_you_mean
from sere.routing import RECIPES, Guard, Policy, make_policy, parse_policy


class Settings(pydantic.BaseModel):
    """Settings of the plugin.

    Attributes:
        artifact: Folder or Hub id of the artifact; None looks beside the model's weights.
        policy: Name of a recipe, short form (``sere:top_s=2``), or name of an operating point of the
            artifact.
        metric: Similarity to serve; None means the artifact's default.
        counting: Count on the device what happens; costs a few small operations a layer.
        drafts: Re-route draft models and MTP modules too, where the artifact has their layers or the policy
            needs none.
        guard: Steps of fewer rows stay as routed; a pair of least and most, or ``auto`` for what the device's
            cost model or the operating point says; None for no guard.
        parameters: Parameters of the recipe; the user writes them beside the other keys.

    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    artifact: str | None = None
    policy: str = "sere"
    metric: str | None = None
    counting: bool = True
    drafts: bool = False
    guard: int | list[int | None] | str | None = None
    parameters: dict[str, Any] = {}

    @classmethod
    def read(cls, raw: object) -> Settings:
        """Check the user's keys and values.

        Raises:
            EngineError: If a key is unknown, with the closest known one, or a value has a wrong type.
            PolicyError: If a parameter's value is out of range.

        """
        if not isinstance(raw, dict):
            raise EngineError(f"additional_config['sere'] must be an object, got {raw!r}. See docs/vllm.md.")
        named = raw.get("policy", "sere")
        recipe = RECIPES.get(named) if isinstance(named, str) else None
        parameters = list(inspect.signature(recipe).parameters) if recipe is not None else []
        for key in raw:
            if key not in _OWN and key not in parameters:
                raise EngineError(
                    f"additional_config['sere'] has no key {key!r} for policy {named!r}."
                    f"{did_you_mean(str(key), [*_OWN, *parameters])}"
                )
        own = {key: value for key, value in raw.items() if key in _OWN}
        rest = {key: value for key, value in raw.items() if key not in _OWN}
        try:
            settings = cls(**own, parameters=rest)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise EngineError(
                f"additional_config['sere'].{first['loc'][0]} cannot be {first['input']!r}: {first['msg']}. "
                "See docs/vllm.md."
            ) from error
        if recipe is not None:
            make_policy(settings.policy, **rest)
        elif is_short_form(settings.policy):
            parse_policy(settings.policy)
        if not isinstance(settings.guard, str | None):
            Guard.of(settings.guard)
        return settings

    def resolve(self, model: str, revision: str | None = None, place: Place | None = None) -> Resolved:
        """Load the artifact and build the policy.

        Args:
            model: Folder or Hub id of the served model.
            revision: Its revision on the Hub.
            place: The worker's device; None where it is not known, so that the guard ``auto`` stays open if
                the artifact has cost models.

        Raises:
            ArtifactError: If the artifact is missing or damaged.
            PolicyError: If the policy is neither a recipe nor an operating point, or the guard is wrong.
            EngineError: If the policy needs an artifact and there is none.

        """
        artifact = Artifact.from_pretrained(self.artifact) if self.artifact is not None else None
        if artifact is None and Path(model).is_dir() and Artifact.exists_in(model):
            artifact = Artifact.from_pretrained(model)
        named = self._policy(artifact)
        policy = named.policy
        asked = None if place is None and artifact is not None and artifact.costs else self.guard
        guard = named.guarded_by(asked, artifact, place)
        if artifact is None and policy.requires:
            if Path(model).is_dir():
                raise EngineError(
                    f"policy {policy.name!r} needs an artifact, none is named, and none lies beside the "
                    f'weights in {model}. Run \'sere calibrate {model} --out DIR\' and add "artifact": "DIR".'
                )
            artifact = _beside_on_the_hub(model, revision, policy)
        return Resolved(self, policy, artifact, named.metric, guard)

    def _policy(self, artifact: Artifact | None) -> NamedPolicy:
        if self.policy in RECIPES:
            return NamedPolicy(self.policy, make_policy(self.policy, **self.parameters), self.metric)
        return named_policy(self.policy, artifact, self.metric)


_OWN: Final = tuple(name for name in Settings.model_fields if name != "parameters")


@dataclass(frozen=True)
class Resolved:
    """Settings with everything loaded.

    Attributes:
        settings: What the user wrote.
        policy: The policy.
        artifact: The artifact, or None where the policy needs none and none was found.
        metric: Similarity to serve; None means the artifact's default.
        guard: Steps that stay as routed, by their number of rows, or None.

    """

    settings: Settings
    policy: Policy
    artifact: Artifact | None
    metric: str | None = field(default=None)
    guard: Guard | None = None

    @property
    def label(self) -> str:
        """The policy's short form, as the user would write it."""
        if ":" in self.settings.policy or not self.settings.parameters:
            return self.settings.policy
        values = ",".join(f"{key}={value}" for key, value in self.settings.parameters.items())
        return f"{self.settings.policy}:{values}"


def _beside_on_the_hub(model: str, revision: str | None, policy: Policy) -> Artifact:
    try:
        return Artifact.from_pretrained(model, revision=revision)
    except ArtifactError as error:
        raise EngineError(
            f"policy {policy.name!r} needs an artifact, none is named, and none was found beside the weights "
            f'of {model} ({error}) Run \'sere calibrate {model} --out DIR\' and add "artifact": "DIR".'
        ) from error
