"""From what a user calls a policy to the policy: a recipe's short form, or an operating point's name."""

from __future__ import annotations

from dataclasses import dataclass

from sere.artifact.artifact import Artifact
from sere.artifact.cost import Place
from sere.artifact.guarding import predicted_guard
from sere.errors import PolicyError, did_you_mean
from sere.routing import RECIPES, Guard, GuardLike, Policy, parse_policy

GuardOption = Guard | GuardLike | str | None
"""What a user may write: rows, a pair of them, None for no guard, or ``auto``: steps for which the policy
does not pay by the device's cost model, or by what was tuned with the operating point."""


@dataclass(frozen=True)
class NamedPolicy:
    """A policy with what belongs to it.

    Attributes:
        label: As the user wrote it.
        policy: The policy.
        metric: Similarity to serve; None means the artifact's default.
        guard: The guard that was stored with an operating point, or None.

    """

    label: str
    policy: Policy
    metric: str | None = None
    guard: Guard | None = None

    def guarded_by(
        self, given: GuardOption, artifact: Artifact | None = None, place: Place | None = None
    ) -> Guard | None:
        """Return the guard that the user asked for.

        Args:
            given: What the user wrote.
            artifact: Where ``auto`` finds the cost model of the device.
            place: The device; None where it is not known.

        Raises:
            PolicyError: If it is malformed, or ``auto`` and neither the device's cost model nor the operating
                point says for which steps the policy pays.

        """
        if given is None:
            return None
        if isinstance(given, str):
            if given != "auto":
                raise PolicyError(f"guard cannot be {given!r}. Write a number of rows, [8, 256], or 'auto'.")
            costs = artifact.costs if artifact is not None else ()
            predicted = None if place is None else predicted_guard(costs, self.policy, self.metric, place)
            if predicted is None and self.guard is None:
                where = "the device" if place is None else str(place)
                raise PolicyError(
                    f"guard 'auto' needs a measurement of the policy on {where}, and {self.label!r} has none "
                    "in this artifact. Run 'sere profile MODEL ARTIFACT --policy POLICY --write' there, or "
                    "write a number of rows."
                )
            return predicted or self.guard
        return Guard.of(given)


def is_short_form(text: str) -> bool:
    """Whether ``text`` names recipes, and no operating point."""
    return any(sign in text for sign in ":@#") or text.strip() in RECIPES


def named_policy(text: str, artifact: Artifact | None, metric: str | None = None) -> NamedPolicy:
    """Look ``text`` up.

    Args:
        text: Short form, ``sere:top_s=2``, or the name of an operating point of the artifact.
        artifact: The artifact, or None.
        metric: Similarity that the user asked for; None for the operating point's or the artifact's own.

    Raises:
        PolicyError: If it is neither, or a parameter is wrong.

    """
    if is_short_form(text):
        return NamedPolicy(text, parse_policy(text), metric)
    points = artifact.operating_points if artifact is not None else {}
    if text not in points:
        hint = did_you_mean(text, [*RECIPES, *points])
        tuned = "" if points else " An artifact gets operating points from 'sere tune'."
        raise PolicyError(f"there is no policy or operating point {text!r}.{hint}{tuned}")
    point = points[text]
    guard = None if point.guard is None else Guard.of(point.guard)
    return NamedPolicy(text, parse_policy(point.policy), metric or point.metric, guard)
