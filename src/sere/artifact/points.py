"""From what a user calls a policy to the policy: a recipe's short form, or an operating point's name."""

from __future__ import annotations

from dataclasses import dataclass

from sere.artifact.artifact import Artifact
from sere.errors import PolicyError, did_you_mean
from sere.routing import RECIPES, Guard, GuardLike, Policy, parse_policy

GuardOption = Guard | GuardLike | str | None
"""What a user may write: rows, a pair of them, ``auto`` for the operating point's own, or None for none."""


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

    def guarded_by(self, given: GuardOption) -> Guard | None:
        """Return the guard that the user asked for.

        Raises:
            PolicyError: If it is malformed, or ``auto`` and none was stored.

        """
        if given is None:
            return None
        if isinstance(given, str):
            if given != "auto":
                raise PolicyError(f"guard cannot be {given!r}. Write a number of rows, [8, 256], or 'auto'.")
            if self.guard is None:
                raise PolicyError(
                    f"guard 'auto' needs an operating point with a guard, and {self.label!r} has none. Run "
                    "'sere tune' with --profile, or write a number of rows."
                )
            return self.guard
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
