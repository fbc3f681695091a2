"""Files of an artifact in a folder: written whole or not at all, read with suspicion."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pydantic
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from sere.artifact import card
from sere.artifact.schema import FORMAT, FORMAT_VERSION, Manifest
from sere.errors import ArtifactError

MANIFEST = "sere.json"
TENSORS = "sere.safetensors"
CARD = "README.md"


def save(
    manifest: Manifest, tensors: Mapping[str, Tensor], folder: Path, facts: card.CardFacts | None = None
) -> None:
    """Write an artifact's files into ``folder``, which is made if need be.

    Args:
        manifest: Everything but the numbers.
        tensors: The numbers.
        folder: Where to.
        facts: What else the card says.

    Raises:
        ArtifactError: If the folder cannot be written, or holds files of these names of something else.

    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_ours(folder)
        data = safetensors.torch.save(dict(tensors))
        manifest = manifest.model_copy(update={"tensors_sha256": hashlib.sha256(data).hexdigest()})
        text = json.dumps(manifest.model_dump(mode="json"), indent=2) + "\n"
        files = {TENSORS: data, MANIFEST: text.encode()}
        if card.is_ours(folder / CARD):
            files[CARD] = card.render(manifest, facts).encode()
        _write_all(folder, files)
    except OSError as error:
        raise ArtifactError(
            f"cannot write the artifact to {folder}: {error.strerror or error}. "
            "Nothing was half-written; free space or choose a folder that you may write to."
        ) from error


def _check_ours(folder: Path) -> None:
    if (folder / MANIFEST).exists():
        try:
            _raw_manifest(folder)
        except ArtifactError as error:
            raise ArtifactError(
                f"{folder / MANIFEST} exists and is not an artifact's. Move it away or choose another folder."
            ) from error
    elif (folder / TENSORS).exists():
        raise ArtifactError(
            f"{folder / TENSORS} exists without a {MANIFEST}. Move it away or choose another folder."
        )


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write every file under a temporary name first, then move all of them into place."""
    written: dict[str, Path] = {}
    old: dict[str, Path] = {}
    try:
        for name, data in files.items():
            written[name] = _write(folder, name, data)
        for name in files:
            if (folder / name).exists():
                old[name] = _temporary(folder, name)
                shutil.copy2(folder / name, old[name])
        _move_all(folder, written, old)
    finally:
        for temporary in (*written.values(), *old.values()):
            temporary.unlink(missing_ok=True)


def _move_all(folder: Path, written: Mapping[str, Path], old: Mapping[str, Path]) -> None:
    """Move the files into place; if that does not come to its end, put the ``old`` ones back."""
    try:
        for name, temporary in written.items():
            temporary.replace(folder / name)
    except BaseException:
        for name, temporary in written.items():
            if name in old:
                old[name].replace(folder / name)
            elif not temporary.exists():
                (folder / name).unlink(missing_ok=True)
        raise


def _write(folder: Path, name: str, data: bytes) -> Path:
    temporary = _temporary(folder, name)
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _temporary(folder: Path, name: str) -> Path:
    descriptor, path = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".tmp")
    os.close(descriptor)
    return Path(path)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def load(folder: Path) -> tuple[Manifest, dict[str, Tensor]]:
    """Read an artifact's files; the numbers are checked by :class:`~sere.artifact.Artifact`.

    Raises:
        ArtifactError: If a file is missing, truncated, foreign, of another version or another save.

    """
    raw = _raw_manifest(folder)
    if raw.get("format_version") != FORMAT_VERSION:
        raise ArtifactError(
            f"{folder / MANIFEST} has format version {raw.get('format_version')!r}; this sere reads "
            f"{FORMAT_VERSION}. Update sere, or calibrate again."
        )
    try:
        manifest = Manifest.model_validate_json(json.dumps(raw))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ArtifactError(
            f"{folder / MANIFEST} is damaged at {place or 'its top'}: {first['msg']}. Calibrate again."
        ) from error
    return manifest, _tensors(folder, manifest)


def _raw_manifest(folder: Path) -> dict[str, object]:
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(
            f"there is no {MANIFEST} in {folder}. Run 'sere calibrate', or name the artifact's folder."
        ) from error
    except OSError as error:
        raise ArtifactError(
            f"cannot read {path}: {error.strerror or error}. Check its permissions."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is truncated or no JSON. Copy it again, or calibrate again.") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise ArtifactError(f"{path} is not a sere artifact. Name a folder that 'sere calibrate' wrote.")
    return raw


def _tensors(folder: Path, manifest: Manifest) -> dict[str, Tensor]:
    path = folder / TENSORS
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ArtifactError(f"{TENSORS} is missing beside {folder / MANIFEST}. Copy both files.") from error
    except OSError as error:
        raise ArtifactError(
            f"cannot read {path}: {error.strerror or error}. Check its permissions."
        ) from error
    if hashlib.sha256(data).hexdigest() != manifest.tensors_sha256:
        raise ArtifactError(
            f"{path} is not the file that {MANIFEST} was saved with: it is truncated, changed, or of another "
            "calibration. Copy both files again, or calibrate again."
        )
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ArtifactError(f"{path} is no safetensors file: {error}. Calibrate again.") from error
    return tensors
