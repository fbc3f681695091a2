"""A point: one policy at one batch size on one seed's text."""

from __future__ import annotations

import math
from statistics import fmean

from sere.evaluation.record import Part


class Sample(Part):
    """One value a sequence, each the mean over its scored tokens.

    Attributes:
        kl: KL(unmodified || re-routed), nats.
        agreement: Share of tokens with the same first choice.
        loss: Negative log-likelihood under the re-routed model, nats.
        reference_loss: The same under the unmodified model.

    """

    kl: list[float]
    agreement: list[float]
    loss: list[float]
    reference_loss: list[float]


class Point(Part):
    """What a policy reads and loses.

    Attributes:
        policy: Its short form.
        batch_size: B, sequences that decode together; they are neighbours in ``sample``.
        seed: Number of the share of held-out text.
        before: Distinct experts that the router chose, mean per layer and step.
        after: Distinct experts that are read.
        of: E, experts of a layer; the largest where layers differ.
        rerouted: Share of slots that the policy changed, in [0, 1].
        tokens: Tokens scored.
        sample: Fidelity sequence by sequence.

    """

    policy: str
    batch_size: int
    seed: int
    before: float
    after: float
    of: int
    rerouted: float
    tokens: int
    sample: Sample

    @property
    def kl(self) -> float:
        """Mean KL(unmodified || re-routed), nats per token."""
        return fmean(self.sample.kl)

    @property
    def top1(self) -> float:
        """Share of tokens with the unmodified model's first choice."""
        return fmean(self.sample.agreement)

    @property
    def perplexity_change(self) -> float:
        """Relative change of perplexity; 0.1 is ten per cent worse."""
        return math.exp(fmean(self.sample.loss) - fmean(self.sample.reference_loss)) - 1

    @property
    def share(self) -> float:
        """Experts read as a share of the router's choice."""
        return self.after / self.before
