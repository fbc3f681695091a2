"""What the YAML files beside this one name."""

from __future__ import annotations

from typing import Any

import datasets

from sere.demo.tasks import heldout


def documents(task: str, **_metadata: Any) -> Any:
    """Held-out examples of ``task``, 100 of them, as the split ``test``: ``prompt`` and ``answer``."""
    rows = [{"prompt": e.prompt, "answer": e.answer} for e in heldout() if e.task == task]
    return datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})


def exact(doc: dict[str, str], results: list[str]) -> dict[str, float]:
    """Compare as :func:`sere.evaluation.exact_match.solve` does: the first line, without blanks around it."""
    written = results[0].strip().split("\n", 1)[0].strip()
    return {"exact_match": float(written == doc["answer"].strip())}
