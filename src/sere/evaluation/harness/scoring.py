"""Log-likelihood of given answers, read off while they are decoded in a live batch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

Request = tuple[Sequence[int], Sequence[int]]
"""Token ids of a context, at least one, and of the answer to it, at least one."""


class Scored:
    """Sequences that differ in their last token alone, scored together.

    The context without its last token is the prompt; the context's last token and the answer's own,
    but for its last one, are decoding steps. So every prediction of an answer is one of decoding, and a
    question with four letters to choose from is one sequence, as it would be if the letter was asked for.

    Args:
        inputs: Context and answer without the last token, at least one id.
        scored: Tokens of the answer.

    Attributes:
        prompt: Token ids that are read at once.

    """

    def __init__(self, inputs: Sequence[int], scored: int) -> None:
        start = max(1, len(inputs) - scored)
        self.prompt = list(inputs[:start])
        self._forced = list(inputs[start:])
        self._skip = len(inputs) - scored - start + 1
        self._lasts: list[int] = []
        self._sum, self._greedy = 0.0, True
        self._at = 0
        self._results: list[tuple[float, bool]] = []

    def add(self, last: int) -> int:
        """Ask for an answer that ends on ``last``; returns its place in the results."""
        self._lasts.append(last)
        return len(self._lasts) - 1

    def take(self, logits: Tensor, best: int) -> int | None:
        """Read a prediction; see :class:`~sere.evaluation.harness.live.Job`."""
        step, self._at = self._at, self._at + 1
        if step == len(self._forced):
            likely = logits.float().log_softmax(-1)
            for last in self._lasts:
                self._results.append((self._sum + float(likely[last]), self._greedy and last == best))
            return None
        token = self._forced[step]
        if step >= self._skip:
            self._sum += float(logits.float().log_softmax(-1)[token])
            self._greedy = self._greedy and token == best
        return token

    def result(self, place: int) -> tuple[float, bool]:
        """Sum of the answer's log-probabilities, nats, and whether greedy decoding would have written it."""
        return self._results[place]


def grouped(requests: Sequence[Request], most: int) -> tuple[list[Scored], list[tuple[Scored, int]], int]:
    """Put requests that can be scored together into one sequence.

    Args:
        requests: Contexts and answers.
        most: Tokens that the model's context holds; longer ones lose their beginning.

    Returns:
        The sequences in the order of their first request; for each request its sequence and its place in it;
        how many requests were cut.

    """
    jobs: dict[tuple[tuple[int, ...], int], Scored] = {}
    places, cut = [], 0
    for context, answer in requests:
        whole = [*context, *answer]
        cut += len(whole) > most + 1
        whole = whole[-(most + 1) :]
        inputs, scored = whole[:-1], min(len(answer), len(whole) - 1)
        job = jobs.setdefault((tuple(inputs), scored), Scored(inputs, scored))
        places.append((job, job.add(whole[-1])))
    return list(jobs.values()), places, cut
