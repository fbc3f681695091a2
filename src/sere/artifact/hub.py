"""Artifacts on the Hugging Face Hub."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from sere.artifact import store
from sere.errors import ArtifactError

# The bases of HfHubHTTPError are the errors of the HTTP client that the installed hub library uses; without
# a network it raises them bare.
_CLIENT = tuple(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception))
_FAILURES: tuple[type[Exception], ...] = (
    *_CLIENT,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OSError,
    ValueError,  # metadata of the card that the Hub does not take
)


def expand(path: str | Path) -> Path:
    """Return ``path`` with ``~`` as the home folder; unchanged where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # a user that does not exist
        return Path(path)


def resolve(path_or_repo_id: str | Path, *, revision: str | None, token: str | bool | None) -> Path:
    """Return the local folder of an artifact, downloading its two files if it is on the Hub.

    Raises:
        ArtifactError: If there is no such folder and no such repository.

    """
    path = expand(path_or_repo_id)
    if path.is_dir():
        return path
    if path.is_file() and path.name == store.MANIFEST:
        return path.parent
    text = str(path_or_repo_id)
    if (
        isinstance(path_or_repo_id, Path)
        or path.exists()
        or text.count("/") != 1
        or text.startswith((".", "/", "~"))
    ):
        raise ArtifactError(
            f"{text} is no folder with an artifact. Run 'sere calibrate', or name a folder or a repository."
        )
    try:
        folder = huggingface_hub.snapshot_download(
            text, revision=revision, token=token, allow_patterns=[store.MANIFEST, store.TENSORS]
        )
    except _FAILURES as error:
        raise ArtifactError(
            f"{text} is neither a local folder nor a Hub repository that can be read: {_first_line(error)}. "
            "Check the name, the network and your token."
        ) from error
    return Path(folder)


def push(
    save: Callable[[Path], None],
    repo_id: str,
    *,
    private: bool,
    token: str | bool | None,
    revision: str | None,
) -> str:
    """Upload what ``save`` writes and return the commit's address.

    The card is left out where the repository already has a README but no artifact, as a model's own has.

    Raises:
        ArtifactError: If the Hub refuses.

    """
    api = huggingface_hub.HfApi(token=token)
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        foreign_card = api.file_exists(repo_id, store.CARD, revision=revision) and not api.file_exists(
            repo_id, store.MANIFEST, revision=revision
        )
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder))
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                revision=revision,
                commit_message="Add sere expert statistics",
                ignore_patterns=[store.CARD] if foreign_card else None,
            )
    except _FAILURES as error:
        raise ArtifactError(
            f"cannot push to {repo_id}: {_first_line(error)}. Check the name, the network and your token."
        ) from error
    return str(commit.commit_url)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
