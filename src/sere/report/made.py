"""How a record was made, as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping

from sere.artifact import ModelRecord
from sere.provenance import Provenance
from sere.report.form import duration

UNKNOWN = "not recorded"


def made(
    run: Provenance | None,
    *,
    model: ModelRecord | None = None,
    artifact: str | None = None,
    seeds: Mapping[str, object] | None = None,
    seconds: float | None = None,
) -> dict[str, str]:
    """Return heading to text; what a record does not say is called so.

    Args:
        run: The run.
        model: The model.
        artifact: Hash of the artifact.
        seeds: What is seeded to its seed, where ``run`` does not say.
        seconds: Duration.

    """
    rows = {"command": UNKNOWN, "made": UNKNOWN, "versions": UNKNOWN, "hardware": UNKNOWN}
    if run is not None:
        rows["command"] = " ".join(run.command)
        rows["made"] = run.created + ("" if seconds is None else f", took {duration(seconds)}")
        rows["versions"] = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        rows["hardware"] = hardware(run)
        rows["precision"] = f"{run.dtype} on {run.device}, experts by {run.experts}"
    rows["git revision"] = (run.git_revision if run is not None else None) or UNKNOWN
    rows["model"] = UNKNOWN if model is None else described(model)
    rows["artifact"] = (artifact or (run.artifact if run is not None else None)) or "none, or not recorded"
    known = (run.seeds if run is not None else None) or seeds or {}
    rows["seeds"] = ", ".join(f"{name}: {seed}" for name, seed in known.items()) or UNKNOWN
    return rows


def described(model: ModelRecord) -> str:
    """Name a model with what tells it from others."""
    revision = f" at {model.revision}" if model.revision else ""
    return f"{model.id}{revision}, {model.architecture}, fingerprint {model.fingerprint}"


def hardware(run: Provenance) -> str:
    """Say what a run ran on."""
    parts = [run.accelerator, run.processor_name, f"{run.machine}, {run.processor}"]
    parts.append(
        f"{run.threads} thread{'s' * (run.threads != 1)}" + (f" of {run.cores} cores" if run.cores else "")
    )
    parts.append(f"{run.memory_gib:.0f} GiB" if run.memory_gib else None)
    return ", ".join(part for part in parts if part)
