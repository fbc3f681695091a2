"""Loads and cells by hand."""

from sere.bench.results import Latency, Load
from sere.bench.served.record import Activity, Cell


def load(rate=2.0, tpot=40.0, **changes):
    values = {
        "tool": "vllm",
        "rate": rate,
        "completed": 10,
        "failed": 0,
        "seconds": 5.0,
        "requests_per_second": 2.0,
        "tokens_per_second": 1000 / tpot,
        "output_tokens": 320,
        "ttft": Latency(mean=3 * tpot, median=2 * tpot, p99=9 * tpot),
        "tpot": Latency(mean=tpot, median=tpot, p99=2 * tpot),
        "itl": Latency(mean=tpot, median=tpot, p99=3 * tpot),
    }
    return Load(**{**values, **changes})


def activity(policy="sere:top_s=1", after=11.0):
    return Activity(
        policies=[policy],
        layers=[],
        steps=20,
        decode_rows=4.0,
        counted=1.0,
        before=40.0,
        after=after,
        rerouted=0.6,
    )


def cell(variant="unmodified", rate=2.0, repetition=0, tpot=40.0, active=None, **changes):
    return Cell(
        variant=variant,
        rate=rate,
        repetition=repetition,
        run="2026-01-01T00:00:00+00:00",
        load=load(rate, tpot, **changes),
        activity=active,
        result="results/x.json",
        sha256="0" * 64,
    )
