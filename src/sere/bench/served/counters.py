"""What a server counted during a load: distinct experts before and after, slots re-routed."""

from __future__ import annotations

import time
from collections.abc import Callable

from sere.bench.served.record import Activity
from sere.engines.vllm.scrape import Totals, read_totals
from sere.errors import EngineError
from sere.evaluation.record import LayerExperts

PUBLISHED_S = 2
"""Seconds between two publications of a server's counters."""
_PAUSE = 0.25


def settled(url: str, rows: Callable[[Totals | None], bool], patience: float = 3 * PUBLISHED_S) -> Totals:
    """Wait until a server's counters are published up to the present.

    Args:
        url: The server.
        rows: Says whether everything that is expected has been counted.
        patience: Seconds without change after which the counters are taken as they are.

    Raises:
        EngineError: If it publishes none.

    """
    last, changed = None, time.monotonic()
    while True:
        found = _totals(url)
        if found is not None and rows(found):
            return found
        if found != last:
            last, changed = found, time.monotonic()
        if time.monotonic() - changed > patience:
            return found if found is not None else read_totals(url)
        time.sleep(_PAUSE)


def _totals(url: str) -> Totals | None:
    """Read the counters; None while there are none yet."""
    try:
        return read_totals(url)
    except EngineError:
        return None


def decode_rows(found: Totals) -> float:
    """Decode rows of each layer: all layers see the same ones."""
    return max((layer.get("decode_rows", 0.0) for layer in found.layers.values()), default=0.0)


def activity(found: Totals, expected: float) -> Activity:
    """Summarise what was counted during a load.

    Args:
        found: What was added during it.
        expected: Decode rows of a layer that the answers' tokens took.

    Raises:
        EngineError: If no decoding step was counted: then nothing can be said to have been re-routed.

    """
    every = found.every()
    steps = every.get("steps", 0.0)
    if not steps:
        raise EngineError(
            "the server counted no decoding step during the load. Ask for longer answers, and do not start "
            "it with --disable-log-stats."
        )
    layers = [
        LayerExperts(
            name=name,
            before=layer["experts_before"] / layer["steps"],
            after=layer["experts_after"] / layer["steps"],
        )
        for name, layer in found.layers.items()
        if layer.get("steps")
    ]
    return Activity(
        policies=sorted(set(found.policies.values())),
        layers=layers,
        steps=int(steps),
        decode_rows=every["decode_rows"] / steps,
        counted=decode_rows(found) / expected if expected else 0.0,
        before=every["experts_before"] / steps,
        after=every["experts_after"] / steps,
        rerouted=every["slots_rerouted"] / every["slots"],
    )
