"""One task under one policy, as it is kept on disk until the record is put together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sere.evaluation.record import ExpertsRecord, Part

_PREFERRED = "flexible-extract"
_CLOSE = 1e-9


class Cell(Part):
    """What was measured.

    Attributes:
        task: The harness's name.
        policy: Short form.
        batch_size: B.
        run: Start of the run.
        output_type: The harness's word for how it asks.
        prompts: Hash of all prompts and right answers, in order: the same for every policy.
        scores: ``metric,filter`` to the scores of all examples, in the harness's order.
        answers: What was answered: a text, the number of the choice, or whether it is the first choice.
        harness: The harness's results of this task, without the examples.
        sequences: See :class:`~sere.evaluation.harness.record.TaskResult`, as for what follows.
        steps: Likewise.
        mean_live: Likewise.
        cut: Likewise.
        experts: Likewise.
        seconds: Likewise.

    """

    task: str
    policy: str
    batch_size: int
    run: str
    output_type: str
    prompts: str
    scores: dict[str, list[float]]
    answers: list[str]
    harness: dict[str, Any]
    sequences: int
    steps: int
    mean_live: float
    cut: int
    experts: ExpertsRecord | None
    seconds: float

    @property
    def metrics(self) -> dict[str, float]:
        """All figures that the harness aggregated, but for errors of the mean."""
        return {
            name: float(value)
            for name, value in self.harness["results"].items()
            if "," in name and "_stderr," not in name and isinstance(value, int | float)
        }

    @property
    def main(self) -> str:
        """Metric and filter that stand for the task: the first, its lenient reading where there is one."""
        names = list(self.metrics)
        lenient = [name for name in names if name.endswith(f",{_PREFERRED}")]
        return (lenient or names)[0]

    @property
    def main_scores(self) -> list[float] | None:
        """Scores by example of :attr:`main`; None where the harness does more than take their mean."""
        found = self.scores.get(self.main)
        if not found or abs(sum(found) / len(found) - self.metrics[self.main]) > _CLOSE:
            return None
        return found


def read_samples(samples: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, list[float]], list[str]]:
    """Take from the harness's examples: the prompts' hash, scores by metric and filter, and answers."""
    digest = hashlib.sha256()
    scores: dict[str, list[float]] = {}
    answers: dict[Any, str] = {}
    for sample in samples:
        if sample["doc_id"] not in answers:
            digest.update(f"{sample['prompt_hash']} {sample['target_hash']}\n".encode())
            answers[sample["doc_id"]] = _answer(sample["resps"])
        for metric in sample["metrics"]:
            value = sample[metric]
            if isinstance(value, bool | int | float) or hasattr(value, "item"):
                scores.setdefault(f"{metric},{sample['filter']}", []).append(float(value))
    return digest.hexdigest(), scores, list(answers.values())


def _answer(responses: Sequence[Sequence[Any]]) -> str:
    """Say what was answered; scored answers are (log-probability, whether it is the first choice)."""
    first = responses[0][0]
    if isinstance(first, str):
        return json.dumps([each for response in responses for each in response], ensure_ascii=False)
    if len(responses) == 1:
        return str(first[1]) if isinstance(first, tuple | list) else str(first)
    return str(max(range(len(responses)), key=lambda i: float(responses[i][0][0])))
