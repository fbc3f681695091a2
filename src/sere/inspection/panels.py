"""Parts of the pictures: a heat map, a histogram, a scatter plot, lines by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sere.inspection.against import LayerAgainst
from sere.inspection.layer import LayerView

Floats = NDArray[np.float64]
NAMED = 40
"""Experts up to which each is named at the map's side."""


def heat(figure: Any, axes: Any, similarity: Floats, view: LayerView, which: str = "") -> None:
    """Draw similarities in the order of the clusters, light being alike; lines part shared clusters."""
    order = list(view.clusters.tree.order)
    shown = similarity[np.ix_(order, order)].copy()
    np.fill_diagonal(shown, np.nan)
    low, high = view.spread.edges[0], view.spread.edges[-1]
    drawn = axes.imshow(shown, vmin=low, vmax=high, cmap="viridis", interpolation="nearest")
    start = 0
    for members in view.clusters.members:
        if len(members) > 1:
            side = (start - 0.5, start + len(members) - 0.5)
            corners = [(a, b) for a, b in zip((0, 1, 1, 0, 0), (0, 0, 1, 1, 0), strict=True)]
            axes.plot(
                [side[a] for a, _ in corners], [side[b] for _, b in corners], color="white", linewidth=1.2
            )
        start += len(members)
    named = order if len(order) <= NAMED else []
    axes.set_xticks(range(len(named)), named, rotation=90, fontsize=6)
    axes.set_yticks(range(len(named)), named, fontsize=6)
    axes.set_xlabel("experts, in the order of the clusters")
    axes.set_title(
        f"layer {view.index}" + (f", {which}" if which else f": {view.metric} similarity"), fontsize=9
    )
    figure.colorbar(drawn, ax=axes, shrink=0.8, extend="both" if which else "neither")


def histogram(axes: Any, view: LayerView) -> None:
    """Draw the distribution over pairs, with the median and the thresholds."""
    edges, counts = np.array(view.spread.edges), np.array(view.spread.counts)
    axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color="0.75", label="pairs")
    best = [value for _, value in view.substitutes]
    twin, _ = np.histogram(best, bins=edges)
    axes.step(
        edges, np.append(twin, 0) * (counts.max() / max(twin.max(), 1)), where="post", color="C0",
        label="best substitutes (scaled)",
    )  # fmt: skip
    for each in view.critical:
        if edges[0] <= each.threshold <= edges[-1]:
            axes.axvline(each.threshold, color="C3", linewidth=1, linestyle=":")
            axes.text(
                each.threshold, counts.max() * 1.3, f"{len(each.experts)} critical at {each.threshold:g} ",
                ha="right", va="top", fontsize=7, color="C3", rotation=90,
            )  # fmt: skip
    axes.set_ylim(0, counts.max() * 1.3)
    axes.set_xlabel(f"{view.metric} similarity")
    axes.set_ylabel("pairs of experts")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False, fontsize=8)


def scatter(axes: Any, here: Floats, there: Floats, layer: LayerAgainst) -> None:
    """Draw both similarities of every pair."""
    rows, columns = np.triu_indices(len(here), 1)
    one, two = here[rows, columns], there[rows, columns]
    span = min(one.min(), two.min()), max(one.max(), two.max())
    axes.plot(span, span, color="0.7", linewidth=1)
    axes.scatter(
        one, two, s=4, alpha=min(1.0, 300 / len(one) + 0.1), color="C0", linewidths=0, rasterized=True
    )
    axes.set_xlabel(f"{layer.metric} similarity, the first")
    axes.set_ylabel("the second")
    found = layer.agreement
    least = found.choices[-1]
    rank = "-" if found.rank_correlation is None else f"{found.rank_correlation:.3f}"
    kept = "" if least.kept is None else f", kept {least.kept:.1%}"
    axes.set_title(
        f"rank correlation {rank}\n{least.active} active: {least.same:.0%} the same{kept}", fontsize=9
    )


def lines(figure: Any, found: Sequence[LayerAgainst]) -> None:
    """Draw the agreement of two artifacts by layer, with what chance would give."""
    axes = figure.subplots()
    names = [layer.index for layer in found]
    choices = [layer.agreement.choices for layer in found]
    marker = "o" if len(found) <= NAMED else None
    kept = [np.nan if each[-1].kept is None else each[-1].kept for each in choices]
    rank = [
        np.nan if layer.agreement.rank_correlation is None else layer.agreement.rank_correlation
        for layer in found
    ]
    axes.plot(names, kept, color="black", marker=marker, label="similarity kept, K active")
    axes.plot(names, rank, color="C2", marker=marker, label="rank correlation")
    axes.plot(
        names,
        [each[-1].same for each in choices],
        color="C0",
        marker=marker,
        label="same substitute, K active",
    )
    axes.plot(names, [each[-1].chance for each in choices], color="C0", linestyle=":", label="... by chance")
    axes.plot(
        names, [each[0].same for each in choices], color="C1", marker=marker, label="same first substitute"
    )
    axes.plot(
        names,
        [layer.agreement.popular for layer in found],
        color="C1",
        linestyle="--",
        label="... if popular",
    )
    axes.plot(names, [each[0].chance for each in choices], color="C1", linestyle=":", label="... by chance")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(min(0.0, np.nanmin([0.0, *rank, *kept])) * 1.05, 1.02)
    axes.set_xlabel("decoder layer")
    axes.set_title(f"agreement of two artifacts, {found[0].metric}", fontsize=9)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
