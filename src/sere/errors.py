"""Errors that this library raises; every message ends with what the user can do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SereError(Exception):
    """Base class of all errors raised on purpose by :mod:`sere`."""


class RoutingError(SereError, ValueError):
    """A routing batch or a policy parameter is malformed."""


class PolicyError(SereError, ValueError):
    """A policy is unknown, or a parameter of it is unknown or out of range."""


class ArtifactError(SereError):
    """An artifact is missing, damaged, of an unknown version, or of another model."""


class CalibrationError(SereError):
    """Calibration cannot start or cannot go on."""


class DataError(SereError, ValueError):
    """Calibration or evaluation texts are missing, empty or too short."""


class EngineError(SereError):
    """An engine or a model in it cannot be re-routed."""


class RecordError(SereError):
    """A record is missing, damaged, of an unknown kind, or of another model than those beside it."""


class TuningError(SereError, ValueError):
    """A tolerance, a traffic or a search is malformed, or asks for what the texts cannot tell."""


class MissingError(SereError):
    """An optional package that is asked for is not installed."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for a close match of ``word``, else the list of choices."""
    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Choose one of: {', '.join(choices)}."
