"""Measure one policy at one batch size on one seed's text, once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sere.artifact import Artifact
from sere.demo.data import heldout_texts
from sere.engines.transformers import describe, find_layers
from sere.errors import DataError, EngineError, PolicyError
from sere.evaluation.fidelity import Fidelity, fidelity
from sere.evaluation.stepwise import ExpertCount, Rerouting, text_logits
from sere.evaluation.sweep.cache import PointCache
from sere.evaluation.sweep.config import SweepConfig
from sere.evaluation.sweep.identity import code_hash, key_of, model_hash, statistics_hash, tokens_hash
from sere.evaluation.sweep.point import Point, Sample
from sere.evaluation.sweep.shares import deal, take
from sere.evaluation.tokens import check_vocabulary, context_length
from sere.routing import Policy, parse_policy

MOST_KEPT = 1 << 28
"""Bytes of logits of the unmodified model that are kept; those of the last batch size and seed always are."""


class Evaluator:
    """Measures policies by the parallel proxy, and never the same one twice.

    The unmodified model's logits of a batch size and seed, N x (L - prompt) x vocabulary values, are computed
    once and kept until those of others would take more than :data:`MOST_KEPT` bytes. So with a large
    vocabulary ask for all policies of one batch size and seed before the next.

    Args:
        model: A Transformers causal language model with routed experts; put into evaluation mode.
        tokenizer: Its tokenizer.
        artifact: Calibrated statistics; None if no policy needs any.
        texts: Held-out texts; None for the bundled ones.
        config: Sizes.
        metric: Similarity metric; None for the artifact's default.
        cache: File of measured points, or a cache; None keeps them in memory.

    Raises:
        ArtifactError: If the artifact belongs to another model.
        EngineError: If the model cannot be re-routed or predicts no tokens.
        DataError: If there is no text, or the sequences are longer than the model's context.

    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        artifact: Artifact | None,
        texts: Sequence[str] | None = None,
        config: SweepConfig | None = None,
        *,
        metric: str | None = None,
        cache: str | Path | PointCache | None = None,
    ) -> None:
        self.config = config or SweepConfig()
        self.model = model.eval()
        self.record = describe(model)
        if artifact is not None:
            artifact.check_model(self.record)
        if model.get_output_embeddings() is None:
            raise EngineError(
                f"{type(model).__name__} predicts no tokens. Load it as a causal language model."
            )
        limit = context_length(model)
        if limit is not None and self.config.sequence_length > limit:
            raise DataError(
                f"sequences of {self.config.sequence_length} tokens are longer than the model's context of "
                f"{limit}. Ask for shorter ones."
            )
        self.tokenizer, self.artifact, self.metric = tokenizer, artifact, metric
        self.texts = heldout_texts() if texts is None else list(texts)
        self.shares = deal(
            tokenizer, self.texts, self.config.seeds, self.config.sequence_length, self.config.shuffle
        )
        check_vocabulary(model, (share.flatten().tolist() for share in self.shares))
        self.cache = cache if isinstance(cache, PointCache) else PointCache(cache)
        self._hashes: dict[tuple[int, int], str] = {}
        self._statistics: dict[frozenset[str], str] = {}
        self._kept: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}

    @cached_property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Experts and slots, E and K, of every layer."""
        return tuple((layer.num_experts, layer.top_k) for layer in find_layers(self.model))

    @cached_property
    def model_hash(self) -> str:
        """See :func:`~sere.evaluation.sweep.identity.model_hash`."""
        return model_hash(self.model)

    def measure(self, policy: str | Policy, batch_size: int, seed: int = 0) -> Point:
        """Return the point, from the cache if it is there.

        Args:
            policy: A policy or its short form.
            batch_size: B, sequences that decode together.
            seed: Number of the share of held-out text.

        Raises:
            PolicyError: If the policy is malformed, or needs an artifact and there is none.
            ArtifactError: If the artifact cannot serve what it needs.
            EngineError: If the unmodified model gives logits that are NaN.
            DataError: If the seed's share gives too few sequences.

        """
        label, policy = (policy, parse_policy(policy)) if isinstance(policy, str) else (policy.name, policy)
        self.check(policy)
        key = self.key(policy, batch_size, seed)
        found = self.cache.get(key)
        if found is None:
            found = self._point(label, policy, batch_size, seed)
            self.cache.put(key, found)
        return found.model_copy(update={"policy": label})

    def check(self, policy: Policy) -> None:
        """Refuse a policy that the artifact cannot serve; errors as :meth:`measure`."""
        if not policy.requires:
            return
        if self.artifact is None:
            raise PolicyError(f"policy {policy.name!r} needs an artifact. Calibrate the model first.")
        name = self.artifact.layers[0].name
        self.artifact.statistics(name, requires=policy.requires, metric=self.metric)

    def key(self, policy: Policy, batch_size: int, seed: int) -> str:
        """Hash of everything that the point depends on, the code included."""
        return key_of(seed=seed, **self.depends(policy, batch_size, self._tokens(batch_size, seed)))

    def depends(self, policy: Policy | None, batch_size: int, work: str) -> dict[str, object]:
        """Everything that a measurement depends on; ``work`` is the hash of what it is made on."""
        requires = frozenset() if policy is None else policy.requires
        return {
            "policy": repr(policy),
            "batch_size": batch_size,
            "work": work,
            "prompt": self.config.prompt_tokens,
            "model": self.model_hash,
            "statistics": self._statistics_hash(requires),
            "code": code_hash(policy),
        }

    def _statistics_hash(self, requires: frozenset[str]) -> str | None:
        if self.artifact is None or not requires:
            return None
        if requires not in self._statistics:
            self._statistics[requires] = statistics_hash(self.artifact, requires, self.metric)
        return self._statistics[requires]

    def rerouting(self, policy: Policy | None) -> Rerouting:
        """Return what re-routes with ``policy``; None is the unmodified model."""
        calibrated = policy is not None and policy.requires
        return Rerouting(self.artifact if calibrated else None, policy, self.metric)

    def sequences(self, batch_size: int, seed: int) -> Tensor:
        """Return what is measured at a batch size on a seed's share, shape [N, L], int64.

        Raises:
            DataError: If there is no such seed, or its share gives too few.

        """
        return take(self.shares, seed, self.config.sequences_for(batch_size))

    def seconds(self, batch_size: int, policy: str = "none") -> float:
        """Time one point, which is not kept; the unmodified model's part is not in it."""
        self._reference(batch_size, 0)
        started = time.monotonic()
        self._point(policy, parse_policy(policy), batch_size, 0)
        return time.monotonic() - started

    def _tokens(self, batch_size: int, seed: int) -> str:
        """Hash of the sequences, looked up rather than computed for every policy."""
        if (batch_size, seed) not in self._hashes:
            self._hashes[batch_size, seed] = tokens_hash(self.sequences(batch_size, seed))
        return self._hashes[batch_size, seed]

    def _point(self, label: str, policy: Policy, batch_size: int, seed: int) -> Point:
        count, parts = ExpertCount(), []
        rerouting = self.rerouting(policy)
        for ids, reference in self._reference(batch_size, seed):
            logits = self._logits(ids, rerouting, batch_size, count)
            parts.append(fidelity(reference, logits, ids[:, self.config.prompt_tokens + 1 :]))
        near = Fidelity.join(parts)
        return Point(
            policy=label,
            batch_size=batch_size,
            seed=seed,
            before=count.mean_before,
            after=count.mean_after,
            of=max(experts for experts, _ in self.layers),
            rerouted=count.rerouted / count.slots if count.slots else 0.0,
            tokens=len(near.divergence) * (self.config.sequence_length - 1 - self.config.prompt_tokens),
            sample=Sample(
                kl=near.divergence.tolist(),
                agreement=near.agreement.tolist(),
                loss=near.loss.tolist(),
                reference_loss=near.reference_loss.tolist(),
            ),
        )

    def _reference(self, batch_size: int, seed: int) -> list[tuple[Tensor, Tensor]]:
        """Sequences of each forward and the unmodified model's logits of them."""
        if (batch_size, seed) not in self._kept:
            self._make_room()
            ids = self.sequences(batch_size, seed).to(self.model.device)
            rows = batch_size * self.config.batches_a_forward(batch_size)
            plain = Rerouting(None, None)
            pairs = [
                (part, self._logits(part, plain, batch_size, ExpertCount()))
                for part in torch.split(ids, rows)
            ]
            if any(logits.isnan().any() for _, logits in pairs):
                raise EngineError(
                    f"the unmodified model's logits are NaN in {pairs[0][1].dtype}. Load it in another type "
                    "(--dtype), such as float32."
                )
            self._kept[batch_size, seed] = pairs
        return self._kept[batch_size, seed]

    def _make_room(self) -> None:
        """Drop the oldest logits until another set as large as the largest kept one would fit."""
        sizes = {key: sum(logits.nbytes for _, logits in pairs) for key, pairs in self._kept.items()}
        for key in sizes:
            if sum(sizes[each] for each in self._kept) + max(sizes.values()) <= MOST_KEPT:
                break
            del self._kept[key]

    def _logits(self, ids: Tensor, rerouting: Rerouting, batch_size: int, count: ExpertCount) -> Tensor:
        return text_logits(
            self.model, ids, self.config.prompt_tokens, rerouting, "proxy", count, batch=batch_size
        )
