"""Tables and pictures of a server under load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from sere.bench.served.record import ServedRecord, Spread, Summary
from sere.report.blocks import Chart, Table
from sere.report.charts.dots import dots
from sere.report.charts.layers import by_layer
from sere.report.charts.rates import by_rate
from sere.report.finding import Value
from sere.report.form import interval, number, percent, speedup

FIGURES = (
    ("ttft", "Time to the first token", "TTFT, ms", "down", 0),
    ("tpot", "Time per further token", "TPOT, ms", "down", 1),
    ("itl_p99", "Time between two tokens, 99th percentile", "ITL p99, ms", "down", 0),
    ("tokens_per_second", "Output tokens a second", "tokens/s", "up", 1),
    ("goodput", "Requests a second that met the objective", "goodput/s", "up", 2),
)
"""Field of a summary, what it is, axis, where better is, digits."""


def rate_text(rate: float) -> str:
    """Write a rate for an axis."""
    return "all at once" if rate == float("inf") else f"{rate:g}"


def at(rate: float) -> str:
    """Write a rate in a sentence."""
    return "all at once" if rate == float("inf") else f"{rate:g} request{'s' * (rate != 1)}/s"


def value_of(found: Spread | None) -> Value | None:
    """Take a median and its range."""
    return None if found is None else Value(found.median, found.low, found.high)


def table(record: ServedRecord, rate: float, letters: Mapping[str, str], last: bool) -> Table:
    """Put all variants at one rate together, the two controls first; the last one explains the columns."""
    found = [each for each in record.summaries if each.rate == rate]
    goodput = any(each.goodput for each in found)
    columns = ["policy", "in pictures", "experts read", "speed-up (range)", "TPOT, ms", "TTFT, ms"]
    columns += ["ITL, ms", "tokens/s", *["goodput/s"] * goodput]
    rows = []
    for each in found:
        row = [each.variant, letters.get(each.variant, ""), _experts(each)]
        row += [speedup(value_of(each.decoding))]
        row += [interval(value_of(figure), 1) for figure in (each.tpot, each.ttft, each.itl)]
        row += [interval(value_of(each.tokens_per_second), 1)]
        rows.append(row + [interval(value_of(each.goodput), 2)] * goodput)
    return Table(at(rate), columns, rows, note=_note(record) if last else "", code=True)


def _note(record: ServedRecord) -> str:
    bounds = record.config.get("objective")
    said = (
        f" Goodput: requests a second within {', '.join(f'{k} {v:g} ms' for k, v in bounds.items())}."
        if isinstance(bounds, dict) and bounds
        else ""
    )
    return (
        "TTFT: time to the first token; TPOT: a request's time per further token; ITL: time between "
        f"two tokens.{said} Speed-up: unmodified TPOT over this one's, in the same repetition. Experts: "
        "distinct ones per layer and step, as the server counted them."
    )


def _experts(each: Summary) -> str:
    if each.after is None or not each.before:
        return number(each.after)
    return f"{number(each.after)} ({percent(each.after / each.before, 0)})"


def _variants(record: ServedRecord) -> list[str]:
    return list(dict.fromkeys(each.variant for each in record.summaries))


def over_rates(
    record: ServedRecord, rates: Sequence[float], letters: Mapping[str, str], anchor: str
) -> list[Chart]:
    """Draw each of :data:`FIGURES` that was measured over the rates."""
    found = {(each.variant, each.rate): each for each in record.summaries}
    charts = []
    for field, title, up, better, digits in FIGURES:
        lines = {
            variant: [value_of(getattr(found.get((variant, rate)), field, None)) for rate in rates]
            for variant in _variants(record)
        }
        lines = {variant: values for variant, values in lines.items() if any(values)}
        if lines:
            charts.append(
                by_rate(
                    lines,
                    [rate_text(rate) for rate in rates],
                    f"{anchor}-{field.replace('_', '-')}",
                    title=title,
                    up=up,
                    better=better,
                    letters=letters,
                    digits=digits,
                )
            )
    return charts


def speeds(
    record: ServedRecord, rates: Sequence[float], letters: Mapping[str, str], anchor: str
) -> list[Chart]:
    """Draw the speed-up of every policy, rate by rate."""
    charts = []
    for place, rate in enumerate(rates):
        rows = [
            (each.variant, letters.get(each.variant, each.variant), value)
            for each in record.summaries
            if each.rate == rate
            and each.variant != "unmodified"
            and (value := value_of(each.decoding)) is not None
        ]
        if rows:
            title = f"Speed of decoding at {at(rate)}"
            charts.append(dots(rows, f"{anchor}-s{place}", title=title, across="speed over unmodified"))
    return charts


def layers(
    record: ServedRecord, rates: Sequence[float], letters: Mapping[str, str], anchor: str
) -> list[Chart]:
    """Draw distinct experts by layer at the greatest rate, where the servers counted layer by layer."""
    counted = [c for c in record.cells if c.rate == rates[-1] and c.activity is not None]
    names = list(dict.fromkeys(layer.name for c in counted if c.activity for layer in c.activity.layers))
    lines = {}
    for variant in _variants(record):
        own = [c.activity.layers for c in counted if c.variant == variant and c.activity]
        by_name = [{layer.name: layer.after for layer in found} for found in own]
        if by_name and all(set(names) == set(each) for each in by_name):
            lines[variant] = [mean(each[name] for each in by_name) for name in names]
    if len(names) < 2 or not lines:
        return []
    numbers = [next((part for part in name.split(".") if part.isdigit()), name) for name in names]
    title = f"Distinct experts by layer at {at(rates[-1])}"
    return [
        by_layer(
            lines, numbers, f"{anchor}-layers", title=title, up="distinct experts a step", letters=letters
        )
    ]


def slowest(record: ServedRecord) -> Table:
    """Put the 99th percentiles of all variants and rates together."""
    rows = [
        [
            each.variant,
            rate_text(each.rate),
            *(interval(value_of(figure), 1) for figure in (each.ttft_p99, each.tpot_p99, each.itl_p99)),
            interval(value_of(each.requests_per_second), 2),
        ]
        for each in record.summaries
    ]
    columns = ["policy", "requests/s offered", "TTFT p99, ms", "TPOT p99, ms", "ITL p99, ms", "answered/s"]
    return Table("The slowest hundredth: 99th percentiles", columns, rows, code=True)
