"""Pictures of an inspection as PNG files, drawn with Matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sere.artifact import Artifact
from sere.errors import DataError, MissingError
from sere.evaluation.files import check_writable
from sere.inspection.against import LayerAgainst
from sere.inspection.layer import LayerView, matrix
from sere.inspection.panels import heat, histogram, lines, scatter

DPI = 120
SETTINGS: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def draw(
    folder: str | Path,
    artifact: Artifact,
    views: Sequence[LayerView],
    other: Artifact | None = None,
    beside: Sequence[LayerAgainst] | None = None,
) -> list[Path]:
    """Draw a heat map of every layer, and with ``other`` how far the two agree.

    ``layer-03.png`` has the similarities of layer 3 in the order of its clusters and their histogram;
    compared with ``other``, both maps in the first's order and both similarities of every pair.
    ``against.png`` has the agreement by layer. All maps share one scale. Each file is written under another
    name, then moved.

    Args:
        folder: Where to, made if missing.
        artifact: The artifact.
        views: Its layers, inspected.
        other: An artifact that it is compared with.
        beside: The comparison.

    Returns:
        The files.

    Raises:
        MissingError: If Matplotlib is not installed.
        DataError: If the folder cannot be written.

    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingError("pictures need Matplotlib. Run: pip install 'sere-moe[plot]'.") from error
    folder = check_writable(folder)
    compared = {layer.index: layer for layer in beside or ()}
    digits = max(2, len(str(max(view.index for view in views))))
    files = []

    def save(name: str, size: tuple[float, float], paint: Callable[[Any], None]) -> None:
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        files.append(_write(figure, folder / name))

    with mpl.rc_context(SETTINGS):
        for view in views:
            name = f"layer-{view.index:0{digits}}.png"
            here = matrix(artifact, view.name, view.metric)
            if other is None or view.index not in compared:
                save(name, (9, 4.4), partial(_one, view=view, similarity=here))
                continue
            there = matrix(other, other.layer_at(view.index).name, view.metric)
            layer = compared[view.index]
            save(name, (13, 4.4), partial(_two, view=view, here=here, there=there, layer=layer))
        if beside:
            save("against.png", (7, 3.6), partial(lines, found=beside))
    return files


def _one(figure: Any, view: LayerView, similarity: Any) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    heat(figure, left, similarity, view)
    histogram(right, view)


def _two(figure: Any, view: LayerView, here: Any, there: Any, layer: LayerAgainst) -> None:
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.15, 1.15, 1))
    heat(figure, left, here, view, "the first")
    heat(figure, middle, there, view, "the second, in the first's order")
    scatter(right, here, there, layer)


def _write(figure: Any, path: Path) -> Path:
    beside = path.with_name(f".{path.name}")
    try:
        figure.savefig(beside, format="png", dpi=DPI)
        beside.replace(path)
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror or error}. Choose a place you may write to, with space "
            "left."
        ) from error
    finally:
        beside.unlink(missing_ok=True)
    return path
