"""Tables of ``sere inspect --against``, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from sere.cli.inspect_tables import bare, figure, put
from sere.inspection import LayerAgainst

AGREEMENT = (
    "Rank correlation: of the two orders of an expert's substitutes, 0 by chance. Same first: equal first "
    "substitutes, all others being active (in brackets by chance); if popular: the same if each artifact "
    "dealt its own popular substitutes out at random. Same of K: with K random experts active, K as many as "
    "a token has. Kept of K: how much more similar than a random one the second's choice is, as a share of "
    "the first's own choice, by the first's similarities."
)
CRITICAL = "In the first, in the second; below in both (in brackets what chance would put in both)."


def show(found: Sequence[LayerAgainst]) -> None:
    """Print how far two artifacts agree, one row a layer."""
    put(_agreement(found), AGREEMENT)
    put(_critical(found), CRITICAL)


def _agreement(found: Sequence[LayerAgainst]) -> Table:
    headings = ("mean simi-\nlarities", "rank cor-\nrelation", "same\nfirst", "if pop-\nular")
    table = bare("Agreement of the two", *headings, "same\nof K", "kept\nof K")
    for layer in found:
        agreement = layer.agreement
        every, least = agreement.choices[0], agreement.choices[-1]
        table.add_row(
            str(layer.index),
            f"{layer.means[0]:.2f}, {layer.means[1]:.2f}",
            figure(agreement.rank_correlation, ".3f"),
            f"{every.same:.0%} ({every.chance:.0%})",
            f"{agreement.popular:.0%}",
            f"{least.same:.0%} ({least.chance:.0%})",
            figure(least.kept, ".1%"),
        )
    return table


def _critical(found: Sequence[LayerAgainst]) -> Table:
    table = bare("Critical experts", *(f"at {each.threshold:g}" for each in found[0].critical))
    for layer in found:
        cells = (f"{c.first}, {c.second}\n{c.both} ({c.chance:.1f})" for c in layer.critical)
        table.add_row(str(layer.index), *cells)
    return table
