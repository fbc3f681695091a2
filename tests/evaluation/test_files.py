"""Files are written whole or not at all."""

from pathlib import Path

import pytest

from sere.errors import DataError
from sere.evaluation.files import check_writable, write_text


def test_a_file_is_written_into_a_new_folder(tmp_path):
    write_text(tmp_path / "a" / "b.json", "text é")
    assert (tmp_path / "a" / "b.json").read_text(encoding="utf-8") == "text é"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]


def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_text(path, "old")

    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"cannot write .*Choose a folder"):
        write_text(tmp_path / "file" / "record.json", "text")
    with pytest.raises(DataError, match=r"cannot write into .*Choose another output folder"):
        check_writable(tmp_path / "file" / "out")


def test_checking_a_folder_makes_it_and_leaves_it_empty(tmp_path):
    folder = check_writable(tmp_path / "new" / "folder")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
