"""Read the records, and see that they belong together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from sere.artifact import Artifact
from sere.errors import RecordError
from sere.report.kinds import KINDS, calibration
from sere.report.source import FileKind, Kind, Source

MADE_BY = (
    "sere compare, sere demo, sere sweep, sere eval, sere bench, sere profile, benchmarks/cost_model.py or "
    "benchmarks/vllm_decode.py"
)

Read = tuple[Kind, Source]


def read_all(paths: Sequence[Path], mixed: bool = False) -> list[Read]:
    """Read records and artifacts in the order given.

    Args:
        paths: Files with records, folders with artifacts.
        mixed: Allow records of different models.

    Raises:
        RecordError: If one is missing, damaged, of an unknown kind or given twice, or if they are of
            different models and ``mixed`` is False.
        ArtifactError: If an artifact is not whole.

    """
    found = [read(Path(path)) for path in paths]
    hashes = [source.sha256 for _, source in found]
    for place, digest in enumerate(hashes):
        if digest in hashes[:place]:
            raise RecordError(f"{found[place][1].name} is given twice. Give each record once.")
    if not mixed:
        check_same_model([source for _, source in found])
    return found


def read(path: Path) -> Read:
    """Read one record or artifact.

    Raises:
        RecordError: If it is missing, damaged or of an unknown kind.
        ArtifactError: If it is an artifact that is not whole.

    """
    if path.is_dir() or path.name == "sere.json":
        folder = path if path.is_dir() else path.parent
        if not Artifact.exists_in(folder):
            raise RecordError(
                f"{path} is a folder without an artifact. Name a record's file, or an artifact's folder."
            )
        return calibration, calibration.read(folder)
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
        raw = json.loads(text)
    except OSError as error:
        raise RecordError(
            f"cannot read {path}: {error.strerror or error}. Name a record made by {MADE_BY}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is cut short or no JSON. Run the command that makes it again.") from error
    for kind in KINDS:
        if isinstance(raw, dict) and kind.recognises(raw):
            return kind, _parse(kind, text, path, hashlib.sha256(data).hexdigest())
    raise RecordError(f"{path} is no record that a report can show. Give one made by {MADE_BY}.")


def _parse(kind: FileKind, text: str, path: Path, sha256: str) -> Source:
    try:
        return kind.read(text, path.name, sha256)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "its top"
        raise RecordError(
            f"{path} is damaged at {place}: {first['msg']}. Run the command that makes it again."
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RecordError(f"{path} is damaged: {error!r}. Run the command that makes it again.") from error


def check_same_model(sources: Sequence[Source]) -> None:
    """Refuse records of models of different routing shape; a stand-in with random weights is none.

    Raises:
        RecordError: If there are two models.

    """
    shapes: dict[str, str] = {}
    for source in sources:
        if source.model is not None:
            shapes.setdefault(
                source.model.fingerprint,
                f"{source.name} is of {source.model.id} ({source.model.fingerprint})",
            )
    if len(shapes) > 1:
        raise RecordError(
            f"these records are of different models: {'; '.join(shapes.values())}. Make one report "
            "for each model, or "
            "add --mixed to put them on one page that says so."
        )


def doubts(sources: Sequence[Source]) -> list[str]:
    """Say what a reader must know before comparing figures of different records."""
    models = [source for source in sources if source.model is not None]
    said = []
    if len({source.model.fingerprint for source in models if source.model}) > 1:
        names = "; ".join(f"{s.name}: {s.model.id} ({s.model.fingerprint})" for s in models if s.model)
        said.append(
            f"These records are of different models ({names}). Compare figures only within a section."
        )
    elif len({source.model.id for source in models if source.model}) > 1:
        names = "; ".join(f"{s.name}: {s.model.id}" for s in models if s.model)
        said.append(
            f"The models have the same routing shape but different names ({names}): their weights may differ."
        )
    used: dict[str, list[str]] = {}
    for source in models:
        if source.artifact:
            used.setdefault(source.artifact, []).append(source.name)
    if len(used) > 1:
        names = "; ".join(f"{digest[:12]}: {', '.join(files)}" for digest, files in used.items())
        said.append(
            f"The records used different calibrations of the model ({names}). Figures may differ by that."
        )
    stand_ins = [f"{source.name}: {source.stand_in}" for source in sources if source.stand_in]
    if stand_ins and models:
        said.append(
            f"Speed on a stand-in is not the speed of the model itself ({'; '.join(stand_ins)}). "
            "Quality comes from the model."
        )
    return said
