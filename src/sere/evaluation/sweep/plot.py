"""The picture of a sweep: KL against distinct experts, one panel a batch size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from sere.errors import MissingError
from sere.evaluation.files import check_writable
from sere.evaluation.sweep.front import NOTHING
from sere.evaluation.sweep.record import SweepRecord

COLUMNS = 3
PLAIN = ("random", "least_similar")
"""Controls, drawn in grey."""
_MARKS = "osD^vP*X"


def draw(record: SweepRecord, folder: str | Path, name: str = "sweep") -> list[Path]:
    """Draw ``name.svg`` and ``name.png``.

    Args:
        record: The sweep.
        folder: Where to, made if missing.
        name: File name without its ending.

    Returns:
        The two files.

    Raises:
        MissingError: If matplotlib is not installed.
        DataError: If the folder cannot be written.

    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingError("the picture needs matplotlib. Run: pip install 'sere-moe[plot]'.") from error
    folder = check_writable(folder)
    rows = math.ceil(len(record.batch_sizes) / COLUMNS)
    columns = min(COLUMNS, len(record.batch_sizes))
    # A fixed salt and no date: the same record gives the same file.
    with mpl.rc_context({"svg.hashsalt": "sere", "font.size": 9, "svg.fonttype": "path"}):
        figure = Figure(figsize=(4.6 * columns, 3.6 * rows + 1.4), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel, size in zip(panels, record.batch_sizes, strict=False):
            _panel(panel, record, size)
        for panel in panels[len(record.batch_sizes) :]:
            panel.set_axis_off()
        handles = {}
        for panel in panels:
            handles.update(dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True)))
        named = [series for series in record.series if series in handles]
        figure.legend(
            [handles[series] for series in named], named, loc="outside lower center", ncols=5, frameon=False
        )
        figure.suptitle(f"{record.model.id}: what is lost against what is read")
        files = [folder / f"{name}.svg", folder / f"{name}.png"]
        for file in files:
            beside = file.with_name(f".{file.name}")
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(beside, format=file.suffix[1:], dpi=120, metadata=metadata)
            beside.replace(file)
    return files


def _panel(panel: Any, record: SweepRecord, size: int) -> None:
    before = record.before(size).mean
    for number, name in enumerate(record.series):
        points = [each for each in record.at(size, name) if each.kl.mean > NOTHING]
        if not points:
            continue
        points.sort(key=lambda each: each.experts.mean)
        kl = [each.kl.mean for each in points]
        spread = [
            [each.kl.mean - max(each.kl.low, NOTHING) for each in points],
            [each.kl.high - each.kl.mean for each in points],
        ]
        style = {"color": f"C{number % 10}", "linestyle": "-" if number < 10 else "--"}
        if name in PLAIN:
            style = {"color": "0.6", "linestyle": ":"}
        panel.errorbar(
            [each.experts.mean for each in points],
            kl,
            yerr=spread,
            label=name,
            linewidth=2.2 if name == "sere" else 1.1,
            marker=_MARKS[number % len(_MARKS)],
            markersize=3.5,
            elinewidth=0.7,
            **(style if name != "sere" else {"color": "black"}),
        )
    panel.axvline(before / 2, color="0.8", linewidth=1, zorder=0)
    panel.set_yscale("log")
    shown = [each.kl.mean for each in record.at(size) if each.kl.mean > NOTHING]
    if shown:
        panel.set_ylim(min(shown) / 2, max(shown) * 2)
    panel.set_title(f"batch {size}: {before:.1f} experts unmodified, half marked", fontsize=9)
    panel.set_xlabel("distinct experts read per layer and step")
    panel.set_ylabel("KL, nats per token")
