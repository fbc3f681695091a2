"""What a benchmark asks of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from sere.bench.decode.record import Turn


class Engine(Protocol):
    """A model in an engine, with all variants at hand."""

    def describe(self) -> Mapping[str, Any]:
        """Say where the model lies, as arguments of :meth:`sere.provenance.Provenance.now`."""
        ...

    def warm_up(self, ids: Tensor) -> None:
        """Run every variant once on the sequences ``ids``, shape [B, L], int64, before any is timed."""
        ...

    def time(self, variant: str, ids: Tensor, number: int) -> Turn:
        """Time a decoding step of ``variant`` in round ``number`` on sequences of shape [B, L], int64."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...
