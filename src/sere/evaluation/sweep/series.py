"""Series: a recipe with one of its parameters swept, written in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sere.artifact import Artifact
from sere.errors import PolicyError
from sere.routing import RECIPES, make_policy, parse_policy
from sere.routing.recipes import knob_of

CONTROL = "none"
BESIDE = ("sere:top_s=1,threshold=0.2/0.3/0.4/0.5/0.6/0.7/0.8",)
"""Series besides each recipe's own knob: SERE's paper trades by its threshold, too."""


@dataclass(frozen=True)
class Series:
    """What one line of a picture shows.

    Attributes:
        name: As it was asked for.
        policies: Short forms, from the strongest setting to the mildest.

    """

    name: str
    policies: tuple[str, ...]


def series(text: str, experts: int, top_k: int) -> Series:
    """Build a series from ``NAME``, or ``NAME:key=value,key=value/value/value``.

    The parameter with several values is swept; if there is none, the recipe's knob is, with the other
    parameters as given. A recipe without a knob, or with its knob given, is a single setting. Settings that
    would change nothing are left out.

    Args:
        text: The series.
        experts: E.
        top_k: K.

    Raises:
        PolicyError: If it is malformed, or no setting of it changes anything.

    """
    name, _, rest = text.strip().partition(":")
    pairs = [part.partition("=")[::2] for part in rest.split(",") if part.strip()]
    given = {key.strip(): value.strip().split("/") for key, value in pairs}
    swept = [key for key, values in given.items() if len(values) > 1]
    if len(swept) > 1:
        raise PolicyError(f"{text!r} sweeps {' and '.join(swept)}. Sweep one parameter at a time.")
    if name not in RECIPES:
        make_policy(name)  # says what there is
    knob = knob_of(RECIPES[name])
    if not swept and knob is not None and knob.parameter not in given:
        given = {knob.parameter: [_written(value) for value in knob.values(experts, top_k)], **given}
        swept = [knob.parameter]
    values = given[swept[0]] if swept else [""]
    forms = [_form(name, {**given, swept[0]: [value]} if swept else given) for value in values]
    working = tuple(dict.fromkeys(form for form in forms if parse_policy(form).inert(top_k) is None))
    if not working:
        raise PolicyError(
            f"{text!r} changes nothing in a model that routes to {top_k} of {experts} experts. "
            "Choose stronger settings."
        )
    return Series(text.strip(), working)


def served(artifact: Artifact | None = None) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Name the recipes with a knob that an artifact can serve, and what it lacks for each other one.

    Args:
        artifact: None for one that holds everything.

    """
    names = [name for name, recipe in RECIPES.items() if knob_of(recipe) is not None]
    lacking = {} if artifact is None else {name: artifact.lacks(make_policy(name).requires) for name in names}
    left = {name: fields for name, fields in lacking.items() if fields}
    return [name for name in names if name not in left], left


def chosen(
    texts: Sequence[str] | None, experts: int, top_k: int, artifact: Artifact | None = None
) -> list[Series]:
    """Build the series asked for; None for every recipe that is :func:`served`, and :data:`BESIDE`.

    Raises:
        PolicyError: As :func:`series`, or if one is given twice.

    """
    if texts is None:
        texts = [*served(artifact)[0], *BESIDE]
    twice = {text for text in texts if list(texts).count(text) > 1}
    if twice:
        raise PolicyError(f"{', '.join(sorted(twice))} is given twice. Give each series once.")
    return [series(text, experts, top_k) for text in texts]


def _form(name: str, given: dict[str, list[str]]) -> str:
    parts = ",".join(f"{key}={values[0]}" for key, values in given.items())
    return f"{name}:{parts}" if parts else name


def _written(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
