"""The record of a tuning: what was found, what it costs on held-out texts, and what was looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from sere.artifact import ModelRecord
from sere.errors import DataError
from sere.evaluation.files import write_text
from sere.evaluation.provenance import Provenance
from sere.evaluation.record import Part, reason
from sere.evaluation.sweep.estimate import Estimate


class SizeRecord(Part):
    """An operating point at one batch size, measured on held-out shares; estimates are over the shares.

    Attributes:
        batch_size: B, live sequences.
        weight: Its share of the traffic's decoding steps.
        policy: Setting chosen for it; None leaves it as routed.
        before: Distinct experts per layer and step that the router chose.
        after: Distinct experts that are read.
        loss: The loss that the tolerance limits; one on accuracy is over groups of held-out prompts.
        kl: KL(unmodified || re-routed), nats per token.
        top1: Share of tokens with the same first choice.
        perplexity_change: Relative change of perplexity.
        search_loss: Mean loss on the search's shares, or groups of prompts.
        bound: Upper bound that the search foretold for the held-out mean, at 95%; None if as routed.
        speedup: Predicted time of the unmodified model's step over this one's; None without a prediction.
        met: Whether the held-out mean loss is within the tolerance.

    """

    batch_size: int
    weight: float
    policy: str | None
    before: Estimate
    after: Estimate
    loss: Estimate
    kl: Estimate
    top1: Estimate
    perplexity_change: Estimate
    search_loss: float = 0.0
    bound: float | None = None
    speedup: float | None = None
    met: bool


class PointRecord(Part):
    """An operating point.

    Attributes:
        name: Its name in the artifact.
        limit: Most loss that it was searched for, a part of the tolerance.
        policy: Short form; None if no setting keeps the limit.
        sizes: At every batch size of the traffic; empty if there is no setting.
        experts_saved: Share of the distinct experts of all steps of the traffic that are not read.
        speedup: Predicted time of all steps of the traffic, unmodified over this; None without a prediction.
        confirmed: Whether the held-out loss is within ``limit`` at every batch size. Only then is it written.

    """

    name: str
    limit: float
    policy: str | None
    sizes: list[SizeRecord] = Field(default_factory=list)
    experts_saved: Estimate | None = None
    speedup: float | None = None
    confirmed: bool = False


class CandidateRecord(Part):
    """A recipe in the search for the whole tolerance, at one batch size.

    Attributes:
        recipe: Its name, or what was asked for.
        batch_size: B.
        policy: Strongest setting within the tolerance at first look; None if there is none.
        cost: What it was estimated to cost then, distinct experts or predicted seconds.
        final: Strongest setting whose bound is within the tolerance on all of the search's text; None if it
            was not looked at again or there is none.
        final_cost: What that costs.
        refused: Why the model or artifact cannot serve it.

    """

    recipe: str
    batch_size: int
    policy: str | None
    cost: float | None
    final: str | None = None
    final_cost: float | None = None
    refused: str | None = None


class TuneRecord(Part):
    """A whole tuning.

    Attributes:
        kind: Always ``sere-tune``.
        version: Version of this form.
        provenance: The run; the last one where it was interrupted and taken up again.
        model: The model.
        artifact: Hash of the artifact.
        metric: Similarity metric that was served; None for the artifact's default.
        texts_sha256: Hash of the texts, in order.
        tolerance: As the user wrote it.
        traffic: Batch size to share of the steps.
        search: Shares of text that the search saw.
        heldout: Shares that it did not see.
        prompts: Prompts with answers, half of them held out; None for a tolerance on text.
        config: The settings, defaults included.
        points: Operating points, the most careful first.
        recommended: Name of the confirmed point that saves most; None is the unmodified model.
        candidates: What was looked at.
        trials: Settings, batch sizes and shares that all this comes from.
        seconds: Duration of this run.

    """

    kind: Literal["sere-tune"] = "sere-tune"
    version: Literal[1] = 1
    provenance: Provenance
    model: ModelRecord
    artifact: str
    metric: str | None
    texts_sha256: str
    tolerance: str
    traffic: dict[int, float]
    search: list[int]
    heldout: list[int]
    prompts: int | None = None
    config: dict[str, object]
    points: list[PointRecord]
    recommended: str | None
    candidates: list[CandidateRecord]
    trials: int
    seconds: float

    def point(self, name: str) -> PointRecord:
        """Return the operating point of this name.

        Raises:
            DataError: If there is none.

        """
        for point in self.points:
            if point.name == name:
                return point
        raise DataError(f"the record has no point {name!r}. It has: {[each.name for each in self.points]}.")

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all.

        Raises:
            DataError: If ``path`` cannot be written.

        """
        write_text(path, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> TuneRecord:
        """Read what :meth:`save` wrote.

        Raises:
            DataError: If the file is missing or is no such record.

        """
        try:
            return cls.model_validate_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path} is no record of a tuning: {reason(error)}. Make one with sere tune."
            ) from error
