"""The Hub, played by a local folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from sere.artifact import Artifact
from sere.errors import ArtifactError
from tests.artifact.made import artifact

SECRET = "hf_made_up"  # noqa: S105 - a name for the fake


class FakeHub:
    """Repositories are folders below ``root``; branches are folders below those."""

    def __init__(self, root: Path) -> None:
        self.root, self.tokens, self.private = root, [], {}

    def place(self, repo_id, revision):
        return self.root / repo_id.replace("/", "--") / (revision or "main")

    def api(self, token=None):
        self.tokens.append(token)
        return self

    def create_repo(self, repo_id, *, private, exist_ok):
        assert exist_ok
        self.private[repo_id] = private
        self.place(repo_id, None).mkdir(parents=True, exist_ok=True)

    def create_branch(self, repo_id, *, branch, exist_ok):
        assert exist_ok
        self.place(repo_id, branch).mkdir(parents=True, exist_ok=True)

    def file_exists(self, repo_id, name, *, revision):
        return (self.place(repo_id, revision) / name).exists()

    def upload_folder(self, *, repo_id, folder_path, revision, commit_message, ignore_patterns):
        for path in Path(folder_path).iterdir():
            if path.name not in (ignore_patterns or []):
                shutil.copy(path, self.place(repo_id, revision) / path.name)
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def download(self, repo_id, *, revision, token, allow_patterns):
        if not self.place(repo_id, revision).exists():
            raise LocalEntryNotFoundError("no such repository\nand more")
        self.tokens.append(token)
        target = self.root / "cache"
        target.mkdir(exist_ok=True)
        for name in allow_patterns:
            shutil.copy(self.place(repo_id, revision) / name, target / name)
        return str(target)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    fake = FakeHub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", fake.api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.download)
    return fake


def test_what_is_pushed_comes_back(hub):
    url = artifact().push_to_hub("me/stats", private=True, token=SECRET)
    assert url == "https://hub/me/stats/commit/1"
    loaded = Artifact.from_pretrained("me/stats", token=SECRET)
    assert loaded.hash == artifact().hash
    assert hub.private == {"me/stats": True}
    assert hub.tokens == [SECRET, SECRET]


def test_a_revision_is_a_branch(hub):
    artifact(0).push_to_hub("me/stats")
    artifact(1).push_to_hub("me/stats", revision="next")
    assert Artifact.from_pretrained("me/stats").hash == artifact(0).hash
    assert Artifact.from_pretrained("me/stats", revision="next").hash == artifact(1).hash


def test_a_models_own_card_on_the_hub_is_left_alone(hub):
    place = hub.place("me/model", None)
    place.mkdir(parents=True)
    (place / "README.md").write_text("the model's")
    artifact().push_to_hub("me/model")
    assert (place / "README.md").read_text() == "the model's"
    assert (place / "sere.json").exists()


def test_an_own_card_is_renewed(hub):
    artifact().push_to_hub("me/stats")
    (hub.place("me/stats", None) / "README.md").write_text("old")
    artifact().push_to_hub("me/stats")
    assert "some/model" in (hub.place("me/stats", None) / "README.md").read_text()


def test_the_pushed_card_names_its_repository_and_licence(hub):
    artifact().push_to_hub("me/stats", license="mit")
    text = (hub.place("me/stats", None) / "README.md").read_text()
    assert 'license: "mit"' in text
    assert 'sere.rerouted(model, "me/stats"' in text


def test_an_unknown_repository_is_an_error_in_one_line(hub):
    with pytest.raises(ArtifactError, match=r"me/nothing is neither.*no such repository. Check the name"):
        Artifact.from_pretrained("me/nothing")


def test_a_refused_push_is_an_error(hub, monkeypatch):
    def refuse(*args, **options):
        response = SimpleNamespace(headers={}, status_code=403, request=None)
        raise HfHubHTTPError("403 Forbidden", response=response)

    monkeypatch.setattr(hub, "create_repo", refuse)
    with pytest.raises(ArtifactError, match=r"cannot push to me/stats: 403 Forbidden.*token"):
        artifact().push_to_hub("me/stats")


class Unreachable(HfHubHTTPError.__bases__[0]):
    """What the HTTP client of the installed hub library raises by itself."""

    def __init__(self) -> None:
        Exception.__init__(self, "connection refused")


@pytest.mark.parametrize(
    "error", [Unreachable(), OSError("cut off"), ValueError("Invalid metadata in README.md")]
)
def test_no_network_and_a_card_that_is_refused_are_errors_in_one_line(hub, monkeypatch, error):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(hub, "upload_folder", fail)
    with pytest.raises(ArtifactError, match=f"cannot push to me/stats: {str(error)[:12]}"):
        artifact().push_to_hub("me/stats")
