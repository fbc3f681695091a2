"""Counters of a run, read from the device only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import torch
from torch import Tensor

from sere.routing import FIELDS, Routes, RoutingBatch, count

StepKind = Literal["decode", "prefill", "mixed"]
STEP_KINDS: Final[tuple[StepKind, ...]] = ("decode", "prefill", "mixed")
"""What a step holds besides padding: decode rows only, prefill rows only, or both."""

_DECODE_ROWS: Final = FIELDS.index("decode_rows")
_PREFILL_ROWS: Final = FIELDS.index("prefill_rows")

Table = Mapping[str, Mapping[str, int]]
"""Layer name to field to value."""


def new_table(device: torch.device) -> Tensor:
    """Empty counters of one layer, shape [len(STEP_KINDS), len(FIELDS)], int64."""
    return torch.zeros(len(STEP_KINDS), len(FIELDS), dtype=torch.int64, device=device)


def add_step(table: Tensor, batch: RoutingBatch, routes: Routes) -> None:
    """Add one step to ``table`` in place; nothing waits for the device."""
    step = count(batch, routes)
    prefill, decode = step[_PREFILL_ROWS] > 0, step[_DECODE_ROWS] > 0
    kind = prefill.long() + (prefill & decode).long()
    table.index_add_(0, kind.view(1), step.view(1, -1))


@dataclass(frozen=True)
class RunCounters:
    """What happened since the policy was applied or the counters were reset.

    A layer that a model runs several times in one forward counts one step each time.

    Attributes:
        decode: Steps with decode rows only, by layer: :data:`sere.routing.FIELDS` to value.
        prefill: Steps with prefill rows only.
        mixed: Steps with both, which only continuous batching has.
        guarded: Steps with decode rows that the guard left as routed, by layer; they are counted above, too.

    """

    decode: Table
    prefill: Table
    mixed: Table
    guarded: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, tables: Mapping[str, Tensor], guarded: Mapping[str, Tensor] | None = None) -> RunCounters:
        """Copy the layers' tables from their devices; this waits for them."""
        host = {name: table.tolist() for name, table in tables.items()}
        parts = (
            {name: dict(zip(FIELDS, rows[kind], strict=True)) for name, rows in host.items()}
            for kind in range(len(STEP_KINDS))
        )
        decode, prefill, mixed = parts
        return cls(decode, prefill, mixed, {name: int(value) for name, value in (guarded or {}).items()})

    @property
    def layers(self) -> dict[str, dict[str, int]]:
        """All steps together, by layer."""
        return {
            name: {field: sum(part[name][field] for part in self._parts()) for field in FIELDS}
            for name in self.decode
        }

    @property
    def total(self) -> dict[str, int]:
        """All steps and layers together."""
        layers = self.layers.values()
        return {field: sum(layer[field] for layer in layers) for field in FIELDS}

    @property
    def distinct_before(self) -> float:
        """Distinct experts of the router's choice, mean per layer and step that has decode rows."""
        return self.mean("experts_before", "decode", "mixed")

    @property
    def distinct_after(self) -> float:
        """Distinct experts after the policy, mean per layer and step that has decode rows."""
        return self.mean("experts_after", "decode", "mixed")

    def mean(self, field: str, *kinds: StepKind) -> float:
        """Mean of ``field`` per layer and step of the given kinds; NaN if there was no such step."""
        tables = [table for kind in kinds or STEP_KINDS for table in getattr(self, kind).values()]
        steps = sum(table["steps"] for table in tables)
        return sum(table[field] for table in tables) / steps if steps else float("nan")

    def _parts(self) -> Iterator[Table]:
        yield from (self.decode, self.prefill, self.mixed)
