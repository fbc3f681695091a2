"""Tables and picture say what the record says."""

import builtins

import pytest

from sere.errors import MissingError
from sere.evaluation.sweep import plot, tables
from tests.evaluation.sweep.made import record, setting


@pytest.fixture
def made():
    lines = {"sere": [0.20, 0.24, 0.22], "better": [0.10, 0.12, 0.11], "random": [0.5, 0.6, 0.7]}
    return record(
        [
            setting(name, f"{name}:x={x}", x, [k * 6 / x for k in kl])
            for name, kl in lines.items()
            for x in (4, 6)
        ]
    )


def test_the_table_at_equal_experts_ranks_and_marks(made):
    grid = tables.equal_experts(made)
    assert grid.headings == ("series", "batch 4")
    assert grid.rows[0] == ("experts read", "5.0")
    assert [row[0] for row in grid.rows[1:]] == ["better", "sere", "random"]
    assert grid.rows[1][1].startswith("0.1347 *")
    assert "*" not in grid.rows[2][1]


def test_winners_are_named_at_the_levels_that_are_reached(made):
    rows = dict(tables.winners(made).rows)
    assert rows["50%"] == "better"
    assert rows["80%"] == "-"


def test_the_front_leaves_out_what_is_beaten(made):
    assert [row[0] for row in tables.front(made, 4).rows] == ["better:x=4", "better:x=6"]


def test_the_page_holds_every_table(made):
    page = tables.page(made)
    assert "| better | 0.1347 * (" in page
    assert page.count("## ") == 3


def test_the_same_record_gives_the_same_picture(made, tmp_path):
    one, two = plot.draw(made, tmp_path / "one"), plot.draw(made, tmp_path / "two")
    assert [file.name for file in one] == ["sweep.svg", "sweep.png"]
    assert one[0].read_bytes() == two[0].read_bytes()
    assert one[1].read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["sweep.png", "sweep.svg"]


def test_without_matplotlib_the_message_says_what_to_install(made, tmp_path, monkeypatch):
    load = builtins.__import__

    def missing(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingError, match=r"sere-moe\[plot\]"):
        plot.draw(made, tmp_path)
