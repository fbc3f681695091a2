"""Faster batched decoding of Mixture-of-Experts models by reading fewer experts per step.

Importing this package loads no engine; the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sere.version import __version__

if TYPE_CHECKING:
    from sere.artifact import Artifact
    from sere.calibration import calibrate
    from sere.engines.transformers import apply, remove, rerouted
    from sere.evaluation import compare
    from sere.routing import Policy, make_policy, parse_policy

_HOMES = {
    "Artifact": "sere.artifact",
    "calibrate": "sere.calibration",
    "apply": "sere.engines.transformers",
    "remove": "sere.engines.transformers",
    "rerouted": "sere.engines.transformers",
    "compare": "sere.evaluation",
    "Policy": "sere.routing",
    "make_policy": "sere.routing",
    "parse_policy": "sere.routing",
}

__all__ = [
    "Artifact",
    "Policy",
    "__version__",
    "apply",
    "calibrate",
    "compare",
    "make_policy",
    "parse_policy",
    "remove",
    "rerouted",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sere' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
