"""How far re-routed logits are from the unmodified model's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Fidelity:
    """Per-sequence means over the scored tokens, each of shape [N], float64.

    Attributes:
        divergence: KL(unmodified || re-routed) of the next-token distributions, nats per token.
        agreement: Share of tokens for which both models rank the same token first.
        loss: Negative log-likelihood of the text under the re-routed model, nats per token.
        reference_loss: The same under the unmodified model.

    """

    divergence: Tensor
    agreement: Tensor
    loss: Tensor
    reference_loss: Tensor

    @property
    def perplexity(self) -> float:
        """Perplexity of the re-routed model: exp of the mean loss."""
        return float(self.loss.mean().exp())

    @property
    def reference_perplexity(self) -> float:
        """Perplexity of the unmodified model."""
        return float(self.reference_loss.mean().exp())

    @staticmethod
    def join(parts: list[Fidelity]) -> Fidelity:
        """Put the sequences of several batches together."""
        fields = ("divergence", "agreement", "loss", "reference_loss")
        return Fidelity(**{field: torch.cat([getattr(part, field) for part in parts]) for field in fields})


def fidelity(reference: Tensor, logits: Tensor, targets: Tensor) -> Fidelity:
    """Compare two models' logits on the same text, in float32.

    Args:
        reference: Logits of the unmodified model, shape [B, T, V].
        logits: Logits of the re-routed model, shape [B, T, V].
        targets: The text's next tokens, shape [B, T], int64.

    """
    rows = [_sequence(*pair) for pair in zip(reference, logits, targets, strict=True)]
    return Fidelity(*torch.stack(rows, dim=1).unbind())


def _sequence(reference: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
    # One sequence at a time: for a vocabulary of 150,000 the float32 copies are large.
    p, q = reference.float().log_softmax(-1), logits.float().log_softmax(-1)
    divergence = torch.where(p.isneginf(), 0.0, p.exp() * (p - q)).sum(-1)
    agreement = (reference.argmax(-1) == logits.argmax(-1)).double()
    picked = targets.unsqueeze(-1)
    loss, reference_loss = -q.gather(-1, picked), -p.gather(-1, picked)
    return torch.stack([x.double().mean().cpu() for x in (divergence, agreement, loss, reference_loss)])
