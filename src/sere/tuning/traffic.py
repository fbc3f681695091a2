"""How many sequences decode together, and how often."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sere.errors import TuningError

MOST_SIZES = 6
"""Batch sizes that are tuned one by one; a finer histogram is put into classes first."""


@dataclass(frozen=True)
class Traffic:
    """Decoding steps by their number of live sequences.

    Attributes:
        shares: Batch size to its share of all steps; rising sizes, shares that sum to 1.

    """

    shares: Mapping[int, float]

    @classmethod
    def of(cls, counts: Iterable[tuple[int, float]]) -> Traffic:
        """Put a histogram together; more than :data:`MOST_SIZES` sizes fall into classes from 1, 2, 4, 8, ...

        A class is measured at its least size that occurs, from which on its policy is served.

        Raises:
            TuningError: If a size is not 1 or more, or a weight negative or not a number, or all are 0.

        """
        totals: dict[int, float] = {}
        for size, weight in counts:
            if size < 1:
                raise TuningError(f"a batch has 1 sequence or more, not {size}.")
            if not 0 <= weight < float("inf"):
                raise TuningError(f"batch size {size} cannot have the weight {weight}. Write 0 or more.")
            totals[size] = totals.get(size, 0.0) + weight
        occurring = {size: totals[size] for size in sorted(totals) if totals[size] > 0}
        if not occurring:
            raise TuningError("the traffic has no steps. Write for example '1:10,4:20,16:70'.")
        if len(occurring) > MOST_SIZES:
            classes: dict[int, dict[int, float]] = {}
            for size, weight in occurring.items():
                classes.setdefault(size.bit_length(), {})[size] = weight
            occurring = {min(each): sum(each.values()) for each in classes.values()}
        whole = sum(occurring.values())
        return cls({size: weight / whole for size, weight in occurring.items()})

    @classmethod
    def parse(cls, text: str) -> Traffic:
        """Read ``1:10,4:20,16:70`` (batch size to weight), or a file that holds it, or a JSON object of it.

        Raises:
            TuningError: If it is neither, or as :meth:`of`.

        """
        path = Path(text)
        try:
            if ":" not in text or path.is_file():
                text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TuningError(
                f"the traffic {text!r} is neither SIZE:WEIGHT,... nor a file that can be read: {error}."
            ) from error
        return cls.of(_pairs(text))

    def __str__(self) -> str:
        return ", ".join(f"{share:.0%} at batch {size}" for size, share in self.shares.items())


def _pairs(text: str) -> list[tuple[int, float]]:
    try:
        if text.lstrip().startswith("{"):
            return [(int(size), float(weight)) for size, weight in json.loads(text).items()]
        parts = [part for part in text.replace("\n", ",").split(",") if part.strip()]
        split = [part.split(":") for part in parts]
        return [(int(size), float(weight)) for size, weight in split]
    except (ValueError, TypeError, AttributeError) as error:
        raise TuningError(
            f"the traffic cannot be read: {error}. Write batch size and weight, '1:10,4:20,16:70'."
        ) from error
