"""The record of a sweep: everything that its tables and its picture are drawn from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from sere.artifact import ModelRecord
from sere.errors import DataError
from sere.evaluation.files import write_text
from sere.evaluation.provenance import Provenance
from sere.evaluation.record import CompanyRecord, Interval, Part, reason
from sere.evaluation.sweep.estimate import Estimate


class Setting(Part):
    """One policy at one batch size, over all seeds.

    Attributes:
        series: Series that it belongs to.
        policy: Its short form.
        batch_size: B, live sequences.
        before: Distinct experts per layer and step that the router chose.
        experts: Distinct experts that are read.
        kl: KL(unmodified || re-routed), nats per token.
        top1: Share of tokens with the same first choice.
        perplexity_change: Relative change of perplexity.

    """

    series: str
    policy: str
    batch_size: int
    before: Estimate
    experts: Estimate
    kl: Estimate
    top1: Estimate
    perplexity_change: Estimate


class Company(CompanyRecord):
    """How much a sequence's predictions change when its neighbours in the batch are others.

    Attributes:
        series: Series that it belongs to; ``unmodified`` for the model itself, which shows the noise of
            the arithmetic.
        policy: Short form.
        batch_size: B.

    """

    series: str
    policy: str
    batch_size: int


class Solution(Part):
    """Exact match of one policy, decoded for real.

    Attributes:
        series: Series that it belongs to; ``unmodified`` for the model itself.
        policy: Short form.
        batch_size: B, live sequences.
        examples: Prompts decoded.
        exact_match: Share answered rightly.
        interval: Wilson's score interval over prompts.
        same: Share of prompts with the unmodified model's very answer.

    """

    series: str
    policy: str
    batch_size: int
    examples: int
    exact_match: float
    interval: Interval
    same: float


class SweepRecord(Part):
    """A whole sweep.

    Attributes:
        kind: Always ``sere-sweep``.
        version: Version of this form.
        provenance: The run; the last one where it was interrupted and taken up again.
        model: The model.
        artifact: Hash of the artifact, None if none was given.
        metric: Similarity metric that was served; None for the artifact's default.
        texts_sha256: Hash of the held-out texts, in order.
        config: The settings, defaults included.
        settings: Batch size by batch size, series by series; the control ``none`` first.
        company: Effect of the neighbours.
        solutions: Exact match; empty if it was not asked for.
        points: Points that all this comes from.
        measured: Those of them that were measured in this run; the others were there already.
        seconds: Duration of this run.

    """

    kind: Literal["sere-sweep"] = "sere-sweep"
    version: Literal[1] = 1
    provenance: Provenance
    model: ModelRecord
    artifact: str | None
    metric: str | None
    texts_sha256: str
    config: dict[str, object]
    settings: list[Setting]
    company: list[Company] = Field(default_factory=list)
    solutions: list[Solution] = Field(default_factory=list)
    points: int
    measured: int
    seconds: float

    @property
    def batch_sizes(self) -> list[int]:
        """Batch sizes, in order."""
        return list(dict.fromkeys(setting.batch_size for setting in self.settings))

    @property
    def series(self) -> list[str]:
        """Names of the series, in order, without the control."""
        return [name for name in dict.fromkeys(setting.series for setting in self.settings) if name != "none"]

    def at(self, batch_size: int, series: str | None = None) -> Iterator[Setting]:
        """Yield the settings at one batch size, of one series or of all but the control."""
        for setting in self.settings:
            wanted = setting.series != "none" if series is None else setting.series == series
            if wanted and setting.batch_size == batch_size:
                yield setting

    def before(self, batch_size: int) -> Estimate:
        """Distinct experts of the unmodified model at ``batch_size``."""
        for setting in self.settings:
            if setting.batch_size == batch_size:
                return setting.before
        raise DataError(f"the record has no batch size {batch_size}. It has: {self.batch_sizes}.")

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all, one setting a line.

        Raises:
            DataError: If ``path`` cannot be written.

        """
        fields = json.loads(self.model_dump_json())
        lines = []
        for name, value in fields.items():
            if name in ("settings", "company", "solutions"):
                rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
                lines.append(
                    f"  {json.dumps(name)}: [\n{rows}\n  ]" if value else f"  {json.dumps(name)}: []"
                )
            else:
                lines.append(f"  {json.dumps(name)}: {json.dumps(value)}")
        write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: str | Path) -> SweepRecord:
        """Read what :meth:`save` wrote.

        Raises:
            DataError: If the file is missing or is no such record.

        """
        try:
            return cls.model_validate_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path} is no record of a sweep: {reason(error)}. Make one with sere sweep."
            ) from error
