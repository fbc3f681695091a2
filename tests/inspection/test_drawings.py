"""What is drawn, in characters and as files."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from sere.errors import DataError, MissingError
from sere.inspection import compare, inspect
from sere.inspection.pictures import draw
from sere.inspection.shades import BLOCKS, DIAGONAL, bars, binned, shades
from tests.inspection.made import made, planted, random


@pytest.mark.parametrize(
    ("experts", "width"), [(8, 74), (37, 74), (38, 74), (64, 74), (512, 74), (512, 20), (5, 2)]
)
def test_a_map_fits_the_width_and_is_square(experts, width):
    drawn = shades(random(experts), range(experts), width)
    assert max(map(len, drawn.lines)) <= width
    assert {len(line) for line in drawn.lines} == {len(drawn.lines[0])}
    # A character is about twice as high as it is wide.
    assert len(drawn.lines[0]) / len(drawn.lines) == pytest.approx(2, rel=0.35)
    assert len(drawn.starts) == len(drawn.lines)


def test_dense_shades_are_the_alike_experts():
    similarity, labels = planted(sizes=(4, 4), between=0.1, noise=0.01)
    order = np.argsort(labels, kind="stable")
    lines = shades(similarity, order, 40).lines
    cells = np.array([list(line[::2]) for line in lines])
    assert all(cells[i, i] == DIAGONAL for i in range(8))
    dark = {BLOCKS[3], BLOCKS[4]}
    same = labels[order][:, None] == labels[order][None, :]
    away = ~np.eye(8, dtype=bool)
    assert {c in dark for c in cells[same & away]} == {True}
    assert {c in dark for c in cells[~same]} == {False}


def test_bins_are_means_without_the_diagonal():
    similarity = random(5)
    cells = binned(similarity, 2, 1)
    assert cells[0, 0] == pytest.approx(similarity[1, 0])
    assert cells[0, 3] == pytest.approx(similarity[:2, 3].mean())
    assert np.isnan(cells[2, 4])  # the last row alone, its own column


def test_maps_of_equal_or_no_pairs_are_drawn():
    assert set("".join(shades(np.ones((4, 4)), range(4), 20).lines)) == {DIAGONAL, BLOCKS[2]}
    assert shades(np.ones((1, 1)), [0], 20).lines == (DIAGONAL * 2,)
    letters = "".join(shades(random(6), range(6), 20, ascii_only=True).lines)
    assert letters.isascii()


def test_bars_leave_only_empty_bins_blank():
    assert bars([0, 1, 1000]) == " ▁█"
    assert bars([0, 1, 1000], ascii_only=True).isascii()


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_every_layer_gets_a_picture(tmp_path):
    artifact, other = made(random(6, 1), planted()[0]), made(random(6, 3), random(9, 4))
    views = inspect(artifact)
    files = draw(tmp_path / "maps", artifact, views)
    assert [path.name for path in files] == ["layer-01.png", "layer-02.png"]
    files = draw(tmp_path / "maps", artifact, views, other, compare(artifact, other))
    assert [path.name for path in files] == ["layer-01.png", "layer-02.png", "against.png"]
    assert all(is_png(path) for path in files)
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == sorted(path.name for path in files)


def test_an_interrupt_leaves_the_old_picture(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    artifact = made(random(6))
    (old,) = draw(tmp_path, artifact, inspect(artifact))
    before = old.read_bytes()

    def interrupted(self, path, **_):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draw(tmp_path, artifact, inspect(artifact))
    assert old.read_bytes() == before
    assert list(tmp_path.iterdir()) == [old]


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    artifact = made(random(6))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"sere-moe\[plot\]"):
        draw(tmp_path / "maps", artifact, inspect(artifact))
    assert not (tmp_path / "maps").exists()


def test_a_folder_that_cannot_be_written_is_named():
    artifact = made(random(6))
    with pytest.raises(DataError, match="/proc/maps-of-sere"):
        draw("/proc/maps-of-sere", artifact, inspect(artifact))
