"""How alike the experts of one layer are, as a map."""

from __future__ import annotations

from sere.report.blocks import Chart
from sere.report.charts.style import figure, svg

SIDE = 3.1
Matrix = list[list[float]]


def heat(matrix: Matrix, name: str, *, title: str, alt: str, low: float, high: float) -> Chart:
    """Draw an [E, E] similarity; the diagonal, which is one everywhere, is left out.

    Args:
        matrix: Similarities.
        name: Makes the picture's ids unique.
        title: Text below.
        alt: Description.
        low: Value of the darkest colour.
        high: Value of the lightest colour.

    """
    shown = [
        [float("nan") if row == column else value for column, value in enumerate(values)]
        for row, values in enumerate(matrix)
    ]
    with figure(SIDE * 1.15, SIDE) as (drawn, axes):
        axes.grid(False)
        picture = axes.imshow(shown, vmin=low, vmax=high, cmap="viridis", interpolation="nearest")
        axes.set_xlabel("expert")
        axes.set_ylabel("expert")
        bar = drawn.colorbar(picture, shrink=0.8)
        bar.outline.set_visible(False)
        return Chart(svg(drawn, name, alt), alt, title)
