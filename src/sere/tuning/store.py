"""Operating points into the artifact."""

from __future__ import annotations

from pathlib import Path

from sere.artifact import Artifact, OperatingPoint
from sere.errors import ArtifactError
from sere.evaluation.sweep.estimate import Estimate
from sere.tuning.record import PointRecord, SizeRecord, TuneRecord


def operating_points(record: TuneRecord) -> dict[str, OperatingPoint]:
    """Turn the confirmed points of a record into what an artifact keeps."""
    return {point.name: _point(record, point) for point in record.points if point.confirmed}


def write(record: TuneRecord, source: str | Path, folder: str | Path) -> Artifact:
    """Add the confirmed points to an artifact, all files whole or not at all.

    A point of the same name is replaced; a name that this tuning could not confirm is taken out, so that no
    older point passes for this one's.

    Args:
        record: The tuning.
        source: The artifact that was tuned, a folder or a Hub name; read again, so that points written
            meanwhile stay.
        folder: Where the artifact with its points goes; may be ``source``.

    Raises:
        ArtifactError: If ``source`` is not the artifact that was tuned, or ``folder`` cannot be written.

    """
    artifact = Artifact.from_pretrained(source)
    if artifact.hash != record.artifact:
        raise ArtifactError(
            f"the statistics in {source} have changed since they were tuned. Tune again, or name the "
            "artifact that was tuned."
        )
    tuned = artifact.without_operating_points(point.name for point in record.points)
    tuned = tuned.with_operating_points(operating_points(record))
    tuned.save_pretrained(folder)
    return tuned


def _point(record: TuneRecord, point: PointRecord) -> OperatingPoint:
    saved = None if point.experts_saved is None else point.experts_saved.mean
    tuned: dict[str, object] = {
        "tolerance": record.tolerance,
        "limit": point.limit,
        "experts_saved": saved,
        "shares_of_text": len(record.heldout),
        "prompts": record.prompts,
        "created": record.provenance.created,
        "sere": record.provenance.versions.get("sere"),
        "sizes": [_size(size) for size in point.sizes],
    }
    if point.speedup is not None:
        tuned["predicted_speedup"] = point.speedup
    return OperatingPoint.model_validate(
        {
            "policy": point.policy,
            "metric": record.metric,
            "tuned": {k: v for k, v in tuned.items() if v is not None},
        }
    )


def _size(size: SizeRecord) -> dict[str, object]:
    return {
        "batch_size": size.batch_size,
        "weight": size.weight,
        "before": size.before.mean,
        "after": size.after.mean,
        "loss": size.loss.mean,
        "loss_interval": _ends(size.loss),
        "kl": size.kl.mean,
        "kl_interval": _ends(size.kl),
        "agreement": size.top1.mean,
        "agreement_interval": _ends(size.top1),
        "perplexity_change": size.perplexity_change.mean,
        "speedup": size.speedup,
    }


def _ends(value: Estimate) -> list[float]:
    return [value.low, value.high]
