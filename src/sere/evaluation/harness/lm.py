"""The harness's model class over a live batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text

from sere.errors import DataError
from sere.evaluation.harness.config import Scoring
from sere.evaluation.harness.generating import Generated, Sampling
from sere.evaluation.harness.live import Occupancy, run_live
from sere.evaluation.harness.scoring import grouped


class LiveLM(HFLM):  # type: ignore[misc]
    """The harness's own model of Transformers, but for how requests are batched.

    Tokens, chat template and the cutting of texts are the harness's. Decoding is ours: always ``batch_size``
    live sequences, see :func:`~sere.evaluation.harness.live.run_live`.

    Args:
        model: A Transformers causal language model, ready for inference.
        tokenizer: Its tokenizer.
        batch_size: Live sequences.
        scoring: See :class:`~sere.evaluation.harness.EvalConfig`.
        seed: Of sampling; each request draws from a source of its own, whatever it shares a batch with.
        progress: Told how many sequences of how many have ended.

    Attributes:
        occupancy: How full the batch was, since it was last put to zero.
        cut: Prompts that lost their beginning, since then.
        requests: Requests that were run, since then.

    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        batch_size: int,
        scoring: Scoring = "decode",
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        super().__init__(pretrained=model, tokenizer=tokenizer, batch_size=batch_size, backend="causal")
        self._scoring, self._seed, self._progress = scoring, seed, progress
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        self.occupancy, self.cut, self.requests = Occupancy(), 0, 0

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Write answers; a request's arguments are its prompt and the task's generation settings.

        Raises:
            DataError: If a task's settings cannot be followed, or leave no room for a prompt.

        """
        jobs: list[Generated] = []
        stops: list[list[str]] = []
        for request in requests:
            text, given = request.args[:2]
            settings = dict(normalize_gen_kwargs(given, self.max_gen_toks))
            until = handle_stop_sequences(
                settings.pop("until", None), eos=self.tok_decode([self.eot_token_id])
            )
            most = settings.pop("max_gen_toks")
            jobs.append(self._job(request, text, most, until, settings, len(jobs)))
            stops.append(until)
        self._run(jobs)
        texts = [self.tok_decode(job.tokens) for job in jobs]
        return [
            postprocess_generated_text(text, until, self.think_end_token)
            for text, until in zip(texts, stops, strict=True)
        ]

    def _job(
        self, request: Any, text: str, most: int, until: list[str], settings: dict[str, Any], place: int
    ) -> Generated:
        room = self.max_length - most
        if room < 1:
            raise DataError(
                f"task {request.task_name} writes up to {most} tokens, the model's context holds "
                f"{self.max_length}. Allow fewer: --gen max_gen_toks={self.max_length // 2}."
            )
        whole = self.tok_encode(text) or [self.prefix_token_id]
        self.cut += len(whole) > room
        name = f"{self._seed}/{request.task_name}/{request.doc_id}/{place}"
        return Generated(
            self.tokenizer,
            whole[-room:],
            most,
            self._ends(),
            until,
            Sampling.of(request.task_name, settings),
            int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]),
        )

    def _ends(self) -> frozenset[int]:
        listed = getattr(getattr(self.model, "generation_config", None), "eos_token_id", None)
        ends = listed if isinstance(listed, list) else [listed]
        return frozenset(end for end in (self.eot_token_id, *ends) if end is not None)

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
    ) -> list[tuple[float, bool]]:
        """Score answers; a request is its texts, the context's and the answer's token ids."""
        if self._scoring == "prompt":
            self.requests += len(requests)
            found: list[tuple[float, bool]] = super()._loglikelihood_tokens(
                requests, disable_tqdm=disable_tqdm, override_bs=override_bs
            )
            return found
        jobs, places, cut = grouped([(context, answer) for _, context, answer in requests], self.max_length)
        self.cut += cut
        self._run(jobs)
        return [job.result(place) for job, place in places]

    def _run(self, jobs: Sequence[Any]) -> None:
        tell = self._progress
        run_live(
            self.model,
            self.tokenizer,
            jobs,
            int(self.batch_size),
            self.occupancy,
            None if tell is None else lambda done: tell(done, len(jobs)),
        )
        self.requests += len(jobs)
