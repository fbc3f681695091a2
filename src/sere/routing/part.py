"""What the three choices of a policy have in common: they say what they need."""

from __future__ import annotations


class Part:
    """A selection, a fill, a weighing or a score; a frozen dataclass of its parameters."""

    @property
    def requires(self) -> frozenset[str]:
        """Fields of :class:`~sere.routing.layer.LayerStatistics` that must not be None."""
        return frozenset()

    @property
    def needs(self) -> frozenset[str]:
        """Optional fields of :class:`~sere.routing.batch.RoutingBatch` that must not be None."""
        return frozenset()
