"""From loads to medians and spreads, each policy against the unmodified server of the same repetition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean, median

from sere.bench.results import Latency, Load
from sere.bench.served.record import UNMODIFIED, Cell, Spread, Summary

Figure = Callable[[Load], float | None]


def summarise(cells: Sequence[Cell], variants: Sequence[str], rates: Sequence[float]) -> list[Summary]:
    """Summarise every variant at every rate that has a load, rate by rate."""
    return [
        _summary(variant, rate, cells)
        for rate in rates
        for variant in variants
        if any((cell.variant, cell.rate) == (variant, rate) for cell in cells)
    ]


def _summary(variant: str, rate: float, cells: Sequence[Cell]) -> Summary:
    own = [cell for cell in cells if (cell.variant, cell.rate) == (variant, rate)]
    base = {cell.repetition: cell for cell in cells if (cell.variant, cell.rate) == (UNMODIFIED, rate)}
    counted = [cell.activity for cell in own if cell.activity is not None]

    def over(figure: Figure) -> Spread | None:
        return spread([value for cell in own if (value := figure(cell.load)) is not None])

    def against(figure: Figure, inverse: bool = False) -> Spread | None:
        ratios = []
        for cell in own:
            other = base.get(cell.repetition)
            mine, theirs = figure(cell.load), None if other is None else figure(other.load)
            if mine and theirs:
                ratios.append(theirs / mine if inverse else mine / theirs)
        return spread(ratios)

    requests, tokens = over(lambda load: load.requests_per_second), over(lambda load: load.tokens_per_second)
    if requests is None or tokens is None:
        raise ValueError("a load has no throughput")
    return Summary(
        variant=variant,
        rate=rate,
        repetitions=len(own),
        failed=sum(cell.load.failed for cell in own),
        requests_per_second=requests,
        tokens_per_second=tokens,
        goodput=over(lambda load: load.goodput),
        ttft=over(lambda load: _median(load.ttft)),
        ttft_p99=over(lambda load: _p99(load.ttft)),
        tpot=over(lambda load: _median(load.tpot)),
        tpot_p99=over(lambda load: _p99(load.tpot)),
        itl=over(lambda load: _median(load.itl)),
        itl_p99=over(lambda load: _p99(load.itl)),
        decoding=against(lambda load: _median(load.tpot), inverse=True),
        first_token=against(lambda load: _median(load.ttft), inverse=True),
        throughput=against(lambda load: load.tokens_per_second),
        before=mean(each.before for each in counted) if counted else None,
        after=mean(each.after for each in counted) if counted else None,
        rerouted=mean(each.rerouted for each in counted) if counted else None,
        decode_rows=mean(each.decode_rows for each in counted) if counted else None,
    )


def spread(values: Sequence[float]) -> Spread | None:
    """Median, least and greatest; None of nothing."""
    return Spread(median=median(values), low=min(values), high=max(values)) if values else None


def _median(found: Latency | None) -> float | None:
    return None if found is None else found.median


def _p99(found: Latency | None) -> float | None:
    return None if found is None else found.p99
