"""Settings and records with known figures."""

from sere.evaluation.provenance import Provenance
from sere.evaluation.sweep import SweepRecord
from sere.evaluation.sweep.estimate import Estimate
from sere.evaluation.sweep.record import Setting

PROVENANCE = Provenance(
    created="2026-01-01T00:00:00+00:00", command=["sere"], versions={}, machine="", processor="", threads=1,
    device="cpu", dtype="float32", experts="eager",
)  # fmt: skip
MODEL = {"id": "made", "architecture": "qwen3_moe", "fingerprint": "0" * 16}


def setting(series, policy, experts, kl, batch_size=4, before=10.0):
    seeds = len(kl)
    return Setting(
        series=series,
        policy=policy,
        batch_size=batch_size,
        before=Estimate.of([before] * seeds),
        experts=Estimate.of([float(experts)] * seeds),
        kl=Estimate.of(kl),
        top1=Estimate.of([0.9] * seeds),
        perplexity_change=Estimate.of([0.1] * seeds),
    )


def record(settings):
    control = setting("none", "none", 10, [0.0] * len(settings[0].kl.seeds))
    return SweepRecord(
        provenance=PROVENANCE, model=MODEL, artifact=None, metric=None, texts_sha256="", config={},
        settings=[control, *settings], points=0, measured=0, seconds=0.0,
    )  # fmt: skip
