"""Files are written whole or not at all."""

import os
import threading
from pathlib import Path

import pytest

from sere.errors import DataError
from sere.evaluation.files import check_file, check_writable, write_text


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
    with pytest.raises(DataError, match=r"cannot write .*Choose a place"):
        write_text(tmp_path / "file" / "record.json", "text")
    with pytest.raises(DataError, match=r"cannot write into .*Choose another output"):
        check_writable(tmp_path / "file" / "out")


def test_checking_a_folder_makes_it_and_leaves_it_empty(tmp_path):
    folder = check_writable(tmp_path / "new" / "folder")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text(encoding="utf-8") == "text"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_file(pipe)
    writer = threading.Thread(target=write_text, args=(pipe, "text"))
    writer.start()
    assert pipe.read_text(encoding="utf-8") == "text"
    writer.join()
    assert pipe.is_fifo()


def test_checking_a_file_refuses_folders_and_impossible_names_and_touches_nothing(tmp_path):
    check_file(tmp_path / "record.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match=r"is a folder\. Name a file"):
        check_file(tmp_path)
    with pytest.raises(DataError, match=r"name too long.*Choose another name"):
        check_file(tmp_path / ("x" * 300))
