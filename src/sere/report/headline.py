"""The one sentence for a reader in a hurry, and the policy that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sere.report.finding import Finding
from sere.report.form import called, interval, number, percent, speedup
from sere.report.source import Source


@dataclass(frozen=True)
class Headline:
    """What the page opens with.

    Attributes:
        sentence: What was done and what came of it.
        rule: How the policy was chosen.
        policy: Its short form; None if nothing was measured.
        batch: Live sequences that the sentence is about.

    """

    sentence: str
    rule: str
    policy: str | None = None
    batch: int | None = None


def headline(sources: Sequence[Source], keep: float) -> Headline:
    """Choose a policy and say what it does.

    At the largest batch size with quality figures: the fewest distinct experts among the policies that keep
    ``keep`` of the unmodified model's quality, else the one that keeps most.
    """
    found = [finding for source in sources for finding in source.findings]
    known = [
        f for f in found if not f.control and not f.stand_in and f.kept is not None and f.batch is not None
    ]
    if not known:
        return _without_quality(sources, found)
    size = max(f.batch or 0 for f in known)
    there = [f for f in known if f.batch == size]
    # Two measures are not compared: where some settings solved tasks, the others stand back.
    there = [f for f in there if f.tasks is not None] or there
    good = [f for f in there if f.kept is not None and f.kept >= keep]
    best = (
        min(good, key=lambda f: (f.experts or 0, -(f.kept or 0)))
        if good
        else max(there, key=lambda f: f.kept or 0)
    )
    measure = "exact answers" if best.tasks is not None else "likelihood per token"
    rule = (
        f"It is the setting with the fewest distinct experts among the {len(good)} of {len(there)} "
        f"at batch {size} that "
        f"keep {keep:.0%} of the unmodified model's {measure}."
        if good
        else f"None of the {len(there)} settings at batch {size} keeps {keep:.0%} of the "
        f"unmodified model's {measure}; "
        "this one keeps most."
    )
    model = next(called(s.model.id) for s in sources if s.model is not None and best in s.findings)
    return Headline(_sentence(model, best, found), rule, best.policy, size)


def _sentence(model: str, best: Finding, found: Sequence[Finding]) -> str:
    parts = [
        f"With {best.policy}, {model} reads {number(best.experts)} distinct experts per layer and "
        "step instead of "
        f"{number(best.before)} ({percent(best.share, 0)}) at batch {best.batch}"
    ]
    plain = next(
        (f for f in found if f.source == best.source and f.policy == "unmodified" and f.batch == best.batch),
        None,
    )
    if best.tasks is not None and plain is not None and plain.tasks is not None:
        parts.append(
            f"solves {interval(best.tasks, 1, share=True)} of the tasks instead of "
            f"{interval(plain.tasks, 1, share=True)}"
        )
    if best.perplexity_change is not None:
        parts.append(f"changes perplexity by {interval(best.perplexity_change, 1, share=True, sign=True)}")
    text = f"{', '.join(parts[:-1])} and {parts[-1]}." if len(parts) > 1 else f"{parts[0]}."
    speeds = [f for f in found if f.policy == best.policy and f.speed is not None]
    own = [f for f in speeds if not f.stand_in]
    for finding in (own or speeds)[:1]:
        on = "a stand-in with random weights" if finding.stand_in else "the same machine"
        text += (
            f" Its speed was {speedup(finding.speed)} that of the unmodified model at {finding.load} on {on}."
        )
    if not speeds:
        text += " Its speed is not in these records."
    return text


def _without_quality(sources: Sequence[Source], found: Sequence[Finding]) -> Headline:
    fast = [f for f in found if not f.control and f.speed is not None]
    if fast:
        best = max(fast, key=lambda f: f.speed.value if f.speed else 0)
        text = (
            f"The fastest setting, {best.policy} at {best.load}, ran at {speedup(best.speed)} "
            "the unmodified model's speed."
        )
        rule = "These records hold no quality figures: add one of sere compare, sere sweep or sere eval."
        return Headline(text, rule, best.policy, best.batch)
    names = ", ".join(dict.fromkeys(called(s.model.id) for s in sources if s.model is not None)) or "a model"
    return Headline(
        f"The experts of {names} were compared with each other; nothing was re-routed yet.",
        "Add a record of sere compare to see what re-routing saves and costs.",
    )
