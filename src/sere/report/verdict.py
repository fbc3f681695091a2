"""Where re-routing does not pay, as far as the records say."""

from __future__ import annotations

from collections.abc import Sequence

from sere.report.blocks import Points, Section, Text
from sere.report.finding import Finding
from sere.report.form import interval, number, percent, plural, speedup

NOISE = 1e-4
"""KL below this is arithmetic, not policy."""
SAME = 0.995
"""A ratio of speeds above this is written as 1.00."""
LITTLE = 0.97
"""A policy that still reads this share of the experts saves nothing worth its loss."""


def verdict(found: Sequence[Finding]) -> Section:
    """List slow, pointless and beaten settings."""
    items = [*_slow(found), *_overhead(found), *_pointless(found), *_beaten(found)]
    blocks: list[Text | Points] = (
        [Points(items)]
        if items
        else [
            Text(
                "Nothing in these records shows a loss without a gain. They may hold too little to show one."
            )
        ]
    )
    blocks.append(
        Text(
            "Not measured here, known in general: at one live sequence nothing is re-routed, and "
            "nothing is gained; a "
            "machine bound by its host or by arithmetic gains less than its experts suggest; "
            "answers depend on which "
            "sequences share a batch."
        )
    )
    return Section("limits", "Where it does not pay", list(blocks))


def _slow(found: Sequence[Finding]) -> list[str]:
    return [
        f"{f.policy} at {f.load} ({f.source}): {speedup(f.speed)} the unmodified speed; no gain "
        "beyond the spread."
        for f in found
        if f.speed is not None and not f.control and f.speed.low <= 1
    ]


def _overhead(found: Sequence[Finding]) -> list[str]:
    return [
        f"The path itself costs time at {f.load} ({f.source}): the control none, which changes "
        "nothing, ran at "
        f"{speedup(f.speed)}."
        for f in found
        if f.policy == "none" and f.speed is not None and f.speed.high < SAME
    ]


def _pointless(found: Sequence[Finding]) -> list[str]:
    said = [
        f"{f.policy} at {f.load} ({f.source}) still reads {number(f.experts)} of "
        f"{number(f.before)} experts, a share of {percent(f.share, 0)}."
        for f in found
        if not f.control and not f.stand_in and f.share is not None and f.share >= LITTLE
    ]
    return (
        said
        if len(said) < 4
        else [*said[:3], f"{plural(len(said) - 3, 'more setting')} saved less than 3% of the experts."]
    )


def _beaten(found: Sequence[Finding]) -> list[str]:
    """List settings that another one beats in experts and in KL, beyond both intervals."""
    said = []
    for f in found:
        if f.control or f.stand_in or f.kl is None or f.experts is None or f.kl.value < NOISE:
            continue
        better = [
            g
            for g in found
            if not g.control
            and (g.source, g.load) == (f.source, f.load)
            and g.kl is not None
            and g.experts is not None
            and g.experts <= f.experts
            and g.kl.high < f.kl.low
        ]
        if better:
            best = min(better, key=lambda g: g.kl.value if g.kl else 0)
            said.append(
                f"{f.policy} at {f.load} ({f.source}) is beaten: {best.policy} reads no more "
                f"({number(best.experts)} "
                f"against {number(f.experts)} experts) and loses less (KL {interval(best.kl)} "
                f"against {interval(f.kl)})."
            )
    return (
        said
        if len(said) < 9
        else [*said[:8], f"Beaten likewise: {plural(len(said) - 8, 'more setting')}; see the tables."]
    )
