"""What is measured is kept whole, found again, and not mixed with other settings."""

import errno

import pytest

from sere.bench.served.folder import Folder, stem
from sere.bench.store import slug
from sere.errors import DataError, RecordError
from tests.bench.served.made import cell

SETTINGS = {"input_tokens": 16, "rates": [1.0, float("inf")]}


def test_a_cell_is_found_again_by_variant_rate_and_repetition(tmp_path):
    Folder(tmp_path, SETTINGS).put(cell(rate=float("inf"), repetition=1))
    again = Folder(tmp_path, SETTINGS)
    found = again.get("unmodified", float("inf"), 1)
    assert found == cell(rate=float("inf"), repetition=1)
    assert again.get("unmodified", float("inf"), 0) is None
    assert again.get("none", float("inf"), 1) is None


def test_a_cell_that_is_there_is_not_replaced(tmp_path):
    folder = Folder(tmp_path, SETTINGS)
    folder.put(cell(tpot=40))
    folder.put(cell(tpot=99))
    assert Folder(tmp_path, SETTINGS).get("unmodified", 2.0, 0).load.tpot.median == 40
    assert len(list((tmp_path / "cells").iterdir())) == 1


def test_another_benchmark_in_the_folder_is_refused_by_what_differs(tmp_path):
    Folder(tmp_path, SETTINGS)
    with pytest.raises(RecordError, match=r"other settings \(input_tokens: 16 there, 32 now\)"):
        Folder(tmp_path, {**SETTINGS, "input_tokens": 32})


@pytest.mark.parametrize("damage", ["", '{"variant": "none"', '{"variant": "none"}', "[]"])
def test_a_cell_that_was_cut_short_is_named(tmp_path, damage):
    Folder(tmp_path, SETTINGS).put(cell())
    path = tmp_path / "cells" / f"{stem('unmodified', 2.0, 0)}.json"
    path.write_text(damage)
    with pytest.raises(RecordError, match=rf"{path.name} is cut short or damaged .* Delete it"):
        Folder(tmp_path, SETTINGS)


def test_a_full_disk_is_a_named_error_and_leaves_no_part(tmp_path, monkeypatch):
    folder = Folder(tmp_path, SETTINGS)

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        folder.put(cell())
    assert list((tmp_path / "cells").iterdir()) == []
    assert folder.get("unmodified", 2.0, 0) is None


def test_variants_that_look_alike_in_a_file_name_are_kept_apart():
    assert slug("none") == "none"
    assert slug("sere:top_s=1") != slug("sere:top-s=1")
    assert "/" not in slug("sere:top_s=1|oea/x")
