"""The model of a benchmark: the user's own, or one made on the fly."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sere.cli.loading import resolve


class Found:
    """A model.

    Attributes:
        source: Folder or Hub name.
        known: What is known of it without an artifact, as :meth:`sere.bench.subject.Subject.of` takes it.

    """

    def __init__(self, source: str, **known: Any) -> None:
        self.source, self.known = source, known

    @property
    def random(self) -> bool:
        """Whether its weights are random, so that text means nothing to it."""
        return bool(self.known)


@contextmanager
def model_for(model: str, layers: int, out: Path) -> Iterator[Found]:
    """Give the model; the stand-in lies in ``out`` until the benchmark is complete."""
    from sere.bench import standin

    if model != standin.NAME:
        yield Found(resolve(model))
        return
    folder = standin.write(out / standin.NAME, layers)
    yield Found(str(folder), model=standin.record(layers), stand_in=standin.described(layers))
    shutil.rmtree(folder, ignore_errors=True)
