"""The real-size speed run: build, measure in turns, record."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sere.bench.blocks import artifact_for, build, random_text
from sere.errors import DataError
from sere.evaluation.compare import NONE, UNMODIFIED
from sere.evaluation.provenance import Provenance
from sere.evaluation.record import ExpertsRecord, Part, SpeedRecord
from sere.evaluation.speed import measure
from sere.evaluation.stepwise import Rerouting
from sere.evaluation.summarise import experts_record, speed_record
from sere.routing import parse_policy


@dataclass(frozen=True)
class RealSizeConfig:
    """What to run.

    Attributes:
        policies: Short forms; the unmodified model and ``none`` are added in front.
        layers: Decoder blocks, 2.5 GB each.
        batch_size: Live sequences.
        steps: Timed decoding steps of a round.
        rounds: Rounds; in each, every policy runs once.
        prompt_tokens: Tokens of prefill.
        warmup: Steps before the clock starts.
        seed: Seed of weights, similarities and text.
        scale: Divides the widths; anything but 1 is not the real size, and is for tests.

    """

    policies: tuple[str, ...] = ("sere:top_s=2", "sere:top_s=1")
    layers: int = 1
    batch_size: int = 16
    steps: int = 16
    rounds: int = 5
    prompt_tokens: int = 16
    warmup: int = 2
    seed: int = 0
    scale: int = 1

    def __post_init__(self) -> None:
        for name in ("layers", "batch_size", "steps", "rounds", "prompt_tokens", "scale"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be 1 or more, got {getattr(self, name)}.")


class RealSizeResult(Part):
    """One policy's speed; the experts of the unmodified model are what ``none`` counted."""

    policy: str
    experts: ExpertsRecord
    speed: SpeedRecord


class RealSizeRecord(Part):
    """The whole run.

    Attributes:
        provenance: The run.
        config: The settings.
        results: In order: the two controls, then the policies.
        seconds: Duration, building included.

    """

    kind: Literal["sere-real-size-speed"] = "sere-real-size-speed"
    version: Literal[1] = 1
    provenance: Provenance
    config: dict[str, object]
    results: list[RealSizeResult]
    seconds: float


def run_real_size(
    config: RealSizeConfig | None = None, progress: Callable[[str], None] | None = None
) -> RealSizeRecord:
    """Build the blocks and measure every policy in turns, with torch's present number of threads.

    Args:
        config: Settings.
        progress: Told in words what is about to run.

    Raises:
        DataError: If the memory is not there.
        PolicyError: If a policy is malformed.

    """
    started = time.monotonic()
    config = config or RealSizeConfig()
    variants = {UNMODIFIED: Rerouting(None, None), NONE: Rerouting(None, parse_policy(NONE))}
    policies = {text: parse_policy(text) for text in config.policies}
    if progress is not None:
        progress(f"making {config.layers} random block(s) of Qwen3-30B-A3B's shape")
    model = build(config.layers, config.seed, scale=config.scale)
    artifact = artifact_for(model, config.seed)
    variants |= {text: Rerouting(artifact, policy) for text, policy in policies.items()}
    ids = random_text(config.batch_size, config.prompt_tokens + config.warmup + config.steps, config.seed)
    provenance = Provenance.now(
        model, artifact=artifact.hash, seeds={"weights, similarities and text": config.seed}
    )
    speeds = measure(
        model,
        ids,
        variants,
        prompt=config.prompt_tokens,
        rounds=config.rounds,
        warmup=config.warmup,
        progress=progress,
    )
    results = [
        RealSizeResult(
            policy=name,
            experts=experts_record(speeds[NONE if name == UNMODIFIED else name].experts, 128),
            speed=speed_record(speed, config.rounds),
        )
        for name, speed in speeds.items()
    ]
    return RealSizeRecord(
        provenance=provenance,
        config=dataclasses.asdict(config),
        results=results,
        seconds=time.monotonic() - started,
    )
