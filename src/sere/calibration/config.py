"""Settings of a calibration."""

from __future__ import annotations

from dataclasses import dataclass

from sere.artifact import METRICS
from sere.errors import CalibrationError, did_you_mean


@dataclass(frozen=True)
class CalibrationConfig:
    """What to calibrate on, and which similarities to compute.

    Attributes:
        sequences: Sequences taken from the texts; the paper's 400 by default.
        sequence_length: Tokens of each, the paper's 128 by default.
        batch_sequences: Sequences of a batch. Similarities are computed for each batch and averaged
            over batches (Eq. 1 of the paper). If it does not divide ``sequences``, the last batch is smaller.
        metrics: Similarities to serve, the default one first. Frobenius and cosine come for free and
            are added where missing; every CKA costs time, see ``docs/calibration.md``.
        seed: Seed of the order in which documents are taken.
        chunk_tokens: Tokens for which all experts' outputs are held at once. Results do not depend on
            it. None: as many as fit into 256 MB.
        routed_moments: Sum moments over routed tokens too, beside those over all tokens; see
            :class:`sere.calibration.routed.RoutedMoments`. The other statistics stay the same, bit for bit.
        norm_predictor: Fit what predicts the length of an expert's output from the layer's input; see
            :func:`sere.calibration.norm_predictor.fit`. A layer's inputs for all tokens are held until its
            last batch is in: tokens x H values for one layer where layers are streamed, else for all.

    Raises:
        CalibrationError: If a value is out of range or a metric unknown.

    """

    sequences: int = 400
    sequence_length: int = 128
    batch_sequences: int = 16
    metrics: tuple[str, ...] = ("frobenius", "cosine")
    seed: int = 0
    chunk_tokens: int | None = None
    routed_moments: bool = False
    norm_predictor: bool = False

    def __post_init__(self) -> None:
        for name in ("sequences", "sequence_length", "batch_sequences"):
            if getattr(self, name) < 1:
                raise CalibrationError(f"{name} must be at least 1, got {getattr(self, name)}. Raise it.")
        if self.chunk_tokens is not None and self.chunk_tokens < 1:
            raise CalibrationError(f"chunk_tokens must be at least 1, got {self.chunk_tokens}. Leave it out.")
        if not self.metrics:
            raise CalibrationError(f"no metric was asked for. Choose one of: {', '.join(METRICS)}.")
        for metric in self.metrics:
            if metric not in METRICS:
                raise CalibrationError(f"there is no metric {metric!r}.{did_you_mean(metric, METRICS)}")
        smallest = self.sequence_length * (self.sequences % self.batch_sequences or self.batch_sequences)
        if smallest < 4 and any(metric.endswith("unbiased") for metric in self.metrics):
            raise CalibrationError(
                f"unbiased CKA needs batches of at least 4 tokens, the smallest has {smallest}. "
                "Raise sequence_length or batch_sequences."
            )

    @property
    def batches(self) -> int:
        """Batches in all."""
        return -(-self.sequences // self.batch_sequences)

    @property
    def cka(self) -> tuple[str, ...]:
        """The CKA metrics asked for, without repeats."""
        return tuple(dict.fromkeys(metric for metric in self.metrics if metric.startswith("cka")))

    @property
    def served(self) -> tuple[str, ...]:
        """The metrics asked for, followed by those that come for free."""
        return tuple(dict.fromkeys((*self.metrics, "frobenius", "cosine")))
