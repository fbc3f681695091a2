"""The file format: ``sere.json`` and ``sere.safetensors``; see ``docs/artifact.md``."""

from sere.artifact.artifact import Artifact
from sere.artifact.cost import CostModel, Place, PolicyCost, StepSize, predict_seconds, predict_speedup
from sere.artifact.fields import CKA_METRICS, FIELDS, METRICS, PREDICTOR, ROUTED_FIELDS, how_to_get
from sere.artifact.points import GuardOption, NamedPolicy, is_short_form, named_policy
from sere.artifact.schema import (
    FORMAT_VERSION,
    CalibrationRecord,
    LayerRecord,
    Manifest,
    ModelRecord,
    OperatingPoint,
    fingerprint,
)

__all__ = [
    "CKA_METRICS",
    "FIELDS",
    "FORMAT_VERSION",
    "METRICS",
    "PREDICTOR",
    "ROUTED_FIELDS",
    "Artifact",
    "CalibrationRecord",
    "CostModel",
    "GuardOption",
    "LayerRecord",
    "Manifest",
    "ModelRecord",
    "NamedPolicy",
    "OperatingPoint",
    "Place",
    "PolicyCost",
    "StepSize",
    "fingerprint",
    "how_to_get",
    "is_short_form",
    "named_policy",
    "predict_seconds",
    "predict_speedup",
]
