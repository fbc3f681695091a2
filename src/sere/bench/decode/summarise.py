"""From rounds to medians and spreads, each policy against the unmodified model of the same round."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from sere.bench.decode.record import Counted, DecodeResult, Round
from sere.bench.served.record import UNMODIFIED, Spread
from sere.evaluation.record import LayerExperts


def summarise(rounds: Sequence[Round], variants: Sequence[str]) -> list[DecodeResult]:
    """Summarise every variant at every batch size, batch size by batch size."""
    sizes = list(dict.fromkeys(each.batch_size for each in rounds))
    return [
        _result(variant, size, [each for each in rounds if each.batch_size == size])
        for size in sizes
        for variant in variants
    ]


def _result(variant: str, size: int, rounds: Sequence[Round]) -> DecodeResult:
    turns = [{turn.variant: turn for turn in each.turns} for each in rounds]
    own = [each[variant] for each in turns]
    return DecodeResult(
        variant=variant,
        batch_size=size,
        rounds=len(rounds),
        tokens_per_second=_spread([size / turn.seconds for turn in own]),
        step_ms=_spread([1e3 * turn.seconds for turn in own]),
        ratio=_spread([each[UNMODIFIED].seconds / each[variant].seconds for each in turns]),
        experts=_mean([turn.experts for turn in own if turn.experts is not None]),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(median=median(values), low=min(values), high=max(values))


def _mean(counted: Sequence[Counted]) -> Counted | None:
    if not counted:
        return None
    layers = [
        LayerExperts(
            name=parts[0].name,
            before=fmean(part.before for part in parts),
            after=fmean(part.after for part in parts),
        )
        for parts in zip(*(each.layers for each in counted), strict=True)
    ]
    return Counted(
        before=fmean(each.before for each in counted),
        after=fmean(each.after for each in counted),
        rerouted=fmean(each.rerouted for each in counted),
        layers=layers,
    )
