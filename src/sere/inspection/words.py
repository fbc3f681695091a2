"""What the figures mean for a user, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from sere.artifact import Artifact
from sere.inspection.against import LayerAgainst
from sere.inspection.layer import LayerView

HALF = 0.5
"""Share of experts from which on something that holds for all of them is worth a word."""
SMALL = 0.8
"""Rank correlation with small outputs from which on a similarity says little else."""
ARBITRARY = 0.25
"""Silhouette below which clusters have no substantial structure (Kaufman and Rousseeuw, 1990)."""
ALIKE, CLOSE = 0.95, 0.8
"""Shares of the first's choices kept by another calibration: from here on little, and some, is lost."""


def of_layers(views: Sequence[LayerView]) -> list[str]:
    """Say what an inspection found.

    Args:
        views: At least one.

    """
    said = []
    hubs = [view for view in views if view.hub and view.num_experts > 2]
    if hubs:
        central = [view for view in hubs if view.hub and view.hub.share >= HALF]
        if central:
            said.append(
                f"In {len(central)} of {len(hubs)} layers one expert is the first substitute of at least "
                f"{HALF:.0%} of the others: where it is active, most re-routed slots go to it."
            )
        small = [view.hub.small for view in hubs if view.hub and view.hub.small is not None]
        if small and fmean(small) >= SMALL:
            said.append(
                "How alike an expert is to others is mostly how small its outputs are (rank correlation "
                f"{fmean(small):.2f}): by {views[0].metric}, a substitute is then often little more than "
                "leaving the slot out. Compare policies that do not rest on it (oea, refit), or look at "
                "another --metric."
            )
    for place, found in enumerate(views[0].critical):
        kept = fmean(len(view.critical[place].experts) / view.num_experts for view in views)
        if kept > HALF:
            said.append(
                f"At a threshold of {found.threshold:g}, {kept:.0%} of the experts can never be replaced: "
                "there little is left to save."
            )
            break
    return said + _of_clusters(views)


def _of_clusters(views: Sequence[LayerView]) -> list[str]:
    scores = [view.clusters.silhouette for view in views if view.clusters.silhouette is not None]
    if not scores:
        return []
    if median(scores) < ARBITRARY:
        meaning = "the experts form no groups to speak of"
    elif median(len(view.clusters.shared) for view in views) == 1:
        meaning = "there is one group of alike experts, and others that stand alone"
    else:
        meaning = "there are groups of alike experts"
    return [f"Clusters: {meaning} (silhouette {median(scores):.2f} in the median layer)."]


def of_comparison(found: Sequence[LayerAgainst], first: Artifact, second: Artifact) -> list[str]:
    """Say whether the calibration matters, from what it changes in the choice of substitutes.

    Args:
        found: Compared layers, at least one.
        first: The artifact whose similarities losses are counted in.
        second: The other.

    """
    said = []
    if first.hash == second.hash:
        return ["The two artifacts hold the same numbers."]
    once, twice = first.manifest.calibration, second.manifest.calibration
    if once.data_sha256 is not None and once.data_sha256 == twice.data_sha256:
        said.append(
            "Both were calibrated on the same tokens: what differs comes from other settings or versions."
        )
    choices = [layer.agreement.choices for layer in found]
    kept = [each[-1].kept for each in choices if each[-1].kept is not None]
    same, chance = fmean(each[-1].same for each in choices), fmean(each[-1].chance for each in choices)
    few = choices[0][-1].active
    figures = (
        f"With {few} experts active both choose the same substitute in {same:.0%} of the cases (chance "
        f"{chance:.0%})"
    )
    if kept:
        figures += (
            f", and the second's substitutes keep {fmean(kept):.1%} of what the first's are more similar "
            "than random ones"
        )
        least = min(kept)
        figures += f", {least:.1%} in the worst layer" if len(kept) > 1 else ""
        if least >= ALIKE:
            verdict = "It matters little which of the two calibrations you use."
        elif fmean(kept) >= CLOSE:
            verdict = (
                "It matters somewhat which of the two calibrations you use; calibrate on text like your own."
            )
        else:
            verdict = "It matters which of the two calibrations you use; calibrate on text like your own."
        said.append(verdict)
    said.append(figures + ".")
    shift = [abs(layer.means[0] - layer.means[1]) for layer in found]
    if max(shift) > 0.05:
        worst = found[shift.index(max(shift))]
        said.append(
            f"The mean similarity of layer {worst.index} moved from {worst.means[0]:.2f} to "
            f"{worst.means[1]:.2f}: a threshold tuned with one artifact means something else with the other."
        )
    said.append(
        "To see how much of it is chance, compare with a calibration on the same text with another --seed. "
        "To see what it does to predictions, run sere compare with each artifact."
    )
    return said
