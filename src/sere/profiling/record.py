"""The record of a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sere.artifact import CostModel, ModelRecord
from sere.evaluation.files import write_text
from sere.evaluation.record import Part
from sere.provenance import Provenance


class StepRecord(Part):
    """Measured steps of one shape.

    Attributes:
        rows: Rows of a step.
        experts: Distinct experts per MoE layer, forced.
        seconds: Time of a step, the median.
        low: First quartile of the times.
        high: Third quartile.
        predicted: Seconds that the fitted model gives.

    """

    rows: int
    experts: int
    seconds: float
    low: float
    high: float
    predicted: float


class ProfileRecord(Part):
    """A whole profile.

    Attributes:
        kind: Always ``sere-profile``.
        version: Version of this form.
        provenance: The run.
        model: The model.
        artifact: Hash of the artifact, None if none was given.
        config: The settings, defaults included.
        steps: Measured steps.
        cost: The cost model that was fitted to them, with what is expected of the policies.
        seconds: Duration of the run.

    """

    kind: Literal["sere-profile"] = "sere-profile"
    version: Literal[1] = 1
    provenance: Provenance
    model: ModelRecord
    artifact: str | None
    config: dict[str, object]
    steps: list[StepRecord]
    cost: CostModel
    seconds: float

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all.

        Raises:
            DataError: If ``path`` cannot be written.

        """
        write_text(path, self.model_dump_json(indent=2) + "\n")
