"""Recipes: a name, a triple of select, fill and weigh, and a citation.

To add one, write a file with a function that returns a :class:`~sere.routing.policy.Policy` and
add it to :data:`RECIPES`; the test matrix finds it there. Its :func:`~sere.routing.recipes.knob.knob`
is what comparisons sweep and tuning searches.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable

from sere.errors import PolicyError, did_you_mean
from sere.routing.by_rows import ByRows
from sere.routing.per_layer import PerLayer, numbers_of
from sere.routing.policy import Policy
from sere.routing.recipes.base import base
from sere.routing.recipes.by_layer import adapmoe, lexi
from sere.routing.recipes.controls import least_similar, none, random, top_k
from sere.routing.recipes.exfold import exfold
from sere.routing.recipes.fold import fold, tolerance
from sere.routing.recipes.knob import Knob, knob_of
from sere.routing.recipes.lynx import lynx
from sere.routing.recipes.per_row import k1k2, naee
from sere.routing.recipes.refit import refit
from sere.routing.recipes.sere import sere
from sere.routing.recipes.shared import des_vote, energy, moe_spec, oea, xshare

__all__ = ["RECIPES", "Knob", "knob_of", "make_policy", "parse_policy"]

RECIPES: dict[str, Callable[..., Policy]] = {
    "none": none,
    "top_k": top_k,
    "sere": sere,
    "least_similar": least_similar,
    "random": random,
    "oea": oea,
    "xshare": xshare,
    "des_vote": des_vote,
    "moe_spec": moe_spec,
    "energy": energy,
    "base": base,
    "lynx": lynx,
    "naee": naee,
    "k1k2": k1k2,
    "adapmoe": adapmoe,
    "lexi": lexi,
    "fold": fold,
    "exfold": exfold,
    "tolerance": tolerance,
    "refit": refit,
}
"""Registered name to the function that builds the policy."""


def make_policy(name: str, /, **parameters: object) -> Policy:
    """Build a registered policy.

    Args:
        name: Key of :data:`RECIPES`.
        parameters: Arguments of that recipe.

    Raises:
        PolicyError: If the name or a parameter is unknown, or a value is of the wrong type or out
            of range.

    """
    if name not in RECIPES:
        raise PolicyError(f"there is no policy {name!r}.{did_you_mean(name, RECIPES)}")
    recipe = RECIPES[name]
    hints = typing.get_type_hints(recipe)
    known = inspect.signature(recipe).parameters
    for key, value in parameters.items():
        if key not in known:
            raise PolicyError(f"policy {name!r} has no parameter {key!r}.{_choices(key, list(known))}")
        if not _fits(value, hints[key]):
            raise PolicyError(f"{name}: {key} cannot be {value!r}; it takes {_describe(hints[key])}.")
    return recipe(**parameters)


def parse_policy(text: str) -> Policy:
    """Build a policy from its short form, such as ``sere:top_s=2,threshold=0.5``.

    ``oea:top_s=3@4|oea:top_s=2@16`` takes the first for steps of 4 to 15 rows, the second from 16 rows on,
    and leaves smaller steps as routed.
    ``top_k:k=4#0-2+5;top_k:k=2`` takes the first for decoder layers 0, 1, 2 and 5 and the second for all
    others; without a second, those stay as routed. Each of them may itself be one by rows.

    Raises:
        PolicyError: As :func:`make_policy`, and if the text has another form.

    """
    if "#" in text or ";" in text:
        return _by_layers(text)
    if "@" in text:
        return ByRows.of(tuple(_from_rows(text, part) for part in text.split("|")))
    name, _, rest = text.strip().partition(":")
    parameters: dict[str, object] = {}
    for item in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = item.partition("=")
        if not equals:
            raise PolicyError(f"{text!r}: expected key=value, got {item!r}. Write NAME:key=value,key=value.")
        if key.strip() in parameters:
            raise PolicyError(f"{text!r}: {key.strip()!r} is given twice. Keep one of them.")
        parameters[key.strip()] = _value(value.strip())
    return make_policy(name.strip(), **parameters)


def _from_rows(text: str, part: str) -> tuple[int, Policy]:
    policy, at, rows = part.rpartition("@")
    if not at or not rows.strip().isdecimal():
        raise PolicyError(f"{text!r}: expected POLICY@ROWS, got {part!r}. Write POLICY@4|POLICY@16.")
    return int(rows), parse_policy(policy)


def _by_layers(text: str) -> PerLayer:
    layers: list[tuple[int, Policy]] = []
    rest: list[Policy] = []
    for part in text.split(";"):
        policy, hash_, numbers = part.partition("#")
        if hash_:
            layers += [(number, parse_policy(policy)) for number in numbers_of(numbers)]
        else:
            rest.append(parse_policy(policy))
    if len(rest) > 1:
        raise PolicyError(f"{text!r}: {len(rest)} policies without layers. Write POLICY#0-2;POLICY#3;POLICY.")
    return PerLayer.of(layers, rest[0] if rest else None)


def _value(text: str) -> object:
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _fits(value: object, hint: object) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if isinstance(value, bool) or hint is bool:
        return isinstance(value, bool) and hint is bool
    if hint is float:
        return isinstance(value, (int, float))
    return isinstance(hint, type) and isinstance(value, hint)


def _describe(hint: object) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(option) for option in typing.get_args(hint))
    if isinstance(hint, types.UnionType):
        return " or ".join(_describe(option) for option in typing.get_args(hint))
    names = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}
    return names.get(hint, str(hint)) if isinstance(hint, type) else str(hint)


def _choices(key: str, known: list[str]) -> str:
    return did_you_mean(key, known) if known else " It takes none."
