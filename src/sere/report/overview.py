"""Pictures over all records: quality against what is read, and against speed."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sere.report.blocks import Charts, Section, Table, Text
from sere.report.charts.pareto import Spot, pareto
from sere.report.finding import Finding, Value

MOST_LETTERED = 26


def lettered(found: Sequence[Finding]) -> dict[str, str]:
    """Give every policy, the controls too, a short mark: one letter, or two from the 27th on."""
    size = Counter(f.source for f in found)  # small records first: they are what is drawn and named
    policies = list(dict.fromkeys(f.policy for f in sorted(found, key=lambda f: size[f.source])))
    letters = string.ascii_uppercase
    return {
        policy: letters[place] if place < MOST_LETTERED else letters[place // 26 - 1] + letters[place % 26]
        for place, policy in enumerate(policies)
    }


def overview(found: Sequence[Finding], letters: Mapping[str, str]) -> Section:
    """Draw quality against distinct experts by record and load, and against speed where both are known."""
    charts, named = [], dict[str, str]()
    recipes = list(dict.fromkeys(_recipe(policy) for policy in letters if policy != "none"))
    for place, (title, group) in enumerate(_groups(found)):
        tasks = all(f.tasks is not None for f in group)
        spots = [
            Spot(
                f.policy,
                letters[f.policy],
                _recipe(f.policy),
                Value.of(f.experts or 0),
                (f.tasks if tasks else f.kl) or Value.of(0),
            )
            for f in group
        ]
        named |= {f.policy: letters[f.policy] for f in group}
        up = "tasks solved" if tasks else "KL, nats per token"
        charts.append(
            pareto(
                spots,
                f"pareto-{place}",
                title=f"Quality against distinct experts, {title}",
                across="distinct experts per layer and step",
                up=up,
                more_is_better=tasks,
                share=tasks,
                groups=recipes,
            )
        )
    for place, (title, pairs) in enumerate(_with_speed(found)):
        spots = [
            Spot(
                q.policy,
                letters[q.policy],
                _recipe(q.policy),
                s.speed or Value.of(1),
                q.tasks or q.kl or Value.of(0),
            )
            for q, s in pairs
        ]
        named |= {q.policy: letters[q.policy] for q, _ in pairs}
        tasks = all(q.tasks is not None for q, _ in pairs)
        charts.append(
            pareto(
                spots,
                f"speed-{place}",
                title=f"Quality against speed, {title}",
                across="speed over unmodified",
                up="tasks solved" if tasks else "KL, nats per token",
                more_is_better=tasks,
                least_across=False,
                share=tasks,
                groups=recipes,
            )
        )
    if not charts:
        return Section("overview", "Quality against cost", [])
    key = Table(
        "Letters in the pictures",
        ["policy", "letter"],
        [[p, letter] for p, letter in named.items()],
        code=True,
    )
    text = Text(
        "Each point is one setting. Bars are 95% intervals of quality and the range of speed over rounds."
    )
    return Section("overview", "Quality against cost", [text, Charts(charts), key])


def _groups(found: Sequence[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """Group findings with quality by record and load; those of sweeps have pictures of their own."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for f in found:
        known = f.kl is not None or f.tasks is not None
        if not f.stand_in and f.policy != "none" and f.experts is not None and known:
            groups.setdefault((f.source, f.load), []).append(f)
    for (source, load), group in groups.items():
        if any(f.policy == "unmodified" for f in group) and len(group) > 2 and (group[0].batch or 0) > 1:
            yield f"{load} ({source})", group


def _with_speed(found: Sequence[Finding]) -> Iterator[tuple[str, list[tuple[Finding, Finding]]]]:
    """Pair quality and speed of the same policy and batch, from one record or from two."""
    quality = {
        (f.batch, f.policy, f.source): f
        for f in found
        if not f.stand_in and (f.kl is not None or f.tasks is not None) and f.batch
    }
    groups: dict[tuple[str, str, bool], list[tuple[Finding, Finding]]] = {}
    for f in found:
        if f.speed is None or f.policy == "none":
            continue
        same = [q for (batch, policy, _), q in quality.items() if (batch, policy) == (f.batch, f.policy)]
        own = next((q for q in same if q.source == f.source), same[0] if same else None)
        if own is not None:
            groups.setdefault((f.source, f.load, f.stand_in), []).append((own, f))
    for (source, load, stand_in), pairs in groups.items():
        if len(pairs) > 2:
            yield f"{load} ({source}{', speed on a stand-in' if stand_in else ''})", pairs


def _recipe(policy: str) -> str:
    return policy.partition(":")[0]
