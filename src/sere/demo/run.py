"""The demonstration: calibrate, re-route, compare, and measure speed at a real size, in one go."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sere.artifact import Artifact
from sere.bench.blocks import require_memory
from sere.bench.real_size import RealSizeConfig, RealSizeRecord, run_real_size
from sere.bench.threads import pinned
from sere.calibration import CalibrationConfig, calibrate
from sere.calibration.progress import Progress as Calibrated
from sere.demo.model import NAME, load
from sere.demo.tables import fidelity_table, speed_table
from sere.evaluation import CompareConfig, ComparisonRecord, compare
from sere.evaluation.files import check_writable, write_text
from sere.evaluation.record import Part

RECORD = "demo.json"
ARTIFACT = "artifact"


@dataclass(frozen=True)
class DemoConfig:
    """Sizes of the parts of the demonstration.

    Attributes:
        calibration: Settings of the calibration.
        comparison: Settings of the comparison.
        real_size: Settings of the speed run.

    """

    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    comparison: CompareConfig = field(
        default_factory=lambda: CompareConfig(
            batch_sizes=(16,), tasks="bundled", examples_per_task=50, speed_rounds=0, company=False
        )
    )
    real_size: RealSizeConfig = field(default_factory=RealSizeConfig)


QUICK = DemoConfig(
    CalibrationConfig(sequences=32, sequence_length=64),
    CompareConfig(
        batch_sizes=(16,),
        sequences=16,
        sequence_length=48,
        tasks="bundled",
        examples_per_task=3,
        speed_rounds=0,
        company=False,
    ),
    RealSizeConfig(scale=8, rounds=2, steps=4),
)
"""The same tables in seconds; the figures are rough, and the speed is not that of the real size."""


class DemoRecord(Part):
    """Everything that the demonstration measured.

    Attributes:
        quick: Whether it was the short run.
        threshold: Similarity that a substitute must reach, where a threshold is used.
        calibration_seconds: Duration of the calibration.
        comparison: Fidelity and accuracy of the bundled model.
        real_size: Speed at the real size.
        seconds: Duration of everything.

    """

    kind: Literal["sere-demo"] = "sere-demo"
    version: Literal[1] = 1
    quick: bool
    threshold: float
    calibration_seconds: float
    comparison: ComparisonRecord
    real_size: RealSizeRecord
    seconds: float


def run_demo(
    out: str | Path = "runs/demo",
    *,
    quick: bool = False,
    threads: int | None = None,
    model: Path | None = None,
    console: Console | None = None,
) -> DemoRecord:
    """Run the whole demonstration, print its two tables, and write ``artifact/`` and ``demo.json``.

    Args:
        out: Folder to write into, made if missing.
        quick: Take :data:`QUICK` instead of the full sizes.
        threads: CPU threads; None tries which number is fastest.
        model: Folder of another checkpoint of the same kind; None for the bundled one.
        console: Where to print.

    Raises:
        DataError: If ``out`` cannot be written, or the memory is not there.
        EngineError: If the bundled model is not installed.

    """
    started = time.monotonic()
    out, console = check_writable(out), console or Console()
    config = QUICK if quick else DemoConfig()
    require_memory(config.real_size.layers, config.real_size.scale)
    if quick:
        console.print("[bold]Short run[/bold]: figures are rough, and the speed is not that of a real size.")
    loaded, tokenizer = load(model)
    with pinned(threads) as used:
        console.print(f"[bold]1. Calibrate[/bold] {NAME} once, on {used} CPU thread(s)", highlight=False)
        artifact, seconds = _calibrate(loaded, tokenizer, config, console)
        (out / RECORD).unlink(missing_ok=True)  # an earlier run's: it does not belong to the new artifact
        artifact.save_pretrained(out / ARTIFACT)
        threshold = lower_quartile(artifact)
        console.print("[bold]2. Compare[/bold] it with itself under each policy, 16 sequences at a time")
        with console.status("starting") as status:
            comparison = compare(
                loaded, tokenizer, artifact, policies(threshold), config.comparison, progress=status.update
            )
        console.print(fidelity_table(comparison, threshold))
        console.print("[bold]3. Speed[/bold] at a real size, all policies in turns")
        with console.status("starting") as status:
            real_size = run_real_size(config.real_size, status.update)
        console.print(speed_table(real_size))
    record = DemoRecord(
        quick=quick,
        threshold=threshold,
        calibration_seconds=seconds,
        comparison=comparison,
        real_size=real_size,
        seconds=time.monotonic() - started,
    )
    write_text(out / RECORD, record.model_dump_json(indent=2) + "\n")
    console.print(f"Artifact: {out / ARTIFACT}   Record: {out / RECORD}", markup=False, highlight=False)
    return record


def policies(threshold: float) -> tuple[str, ...]:
    """Policies that the demonstration compares, besides the two controls."""
    return (
        "top_k:k=2",
        "sere:top_s=2",
        f"sere:top_s=2,threshold={threshold}",
        "sere:top_s=1",
        f"sere:top_s=1,threshold={threshold}",
        "refit:share=0.07",
    )


def lower_quartile(artifact: Artifact) -> float:
    """Similarity that three quarters of all pairs of experts reach, rounded to two digits.

    As a threshold it means: an expert is replaced only by one that is more alike to it than the least
    alike quarter of all pairs.
    """
    values = []
    for layer in artifact.layers:
        row, column = torch.triu_indices(layer.num_experts, layer.num_experts, offset=1)
        values.append(artifact.similarity(layer.name)[row, column])
    return round(float(torch.cat(values).quantile(0.25)), 2)


def _calibrate(
    model: object, tokenizer: object, config: DemoConfig, console: Console
) -> tuple[Artifact, float]:
    started = time.monotonic()
    bar = Progress(
        TextColumn("all experts on all tokens"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=1.0)

        def show(state: Calibrated) -> None:
            bar.update(task, completed=state.fraction)

        artifact = calibrate(model, tokenizer, config=config.calibration, progress=show, model_id=NAME)  # type: ignore[arg-type]
    return artifact, time.monotonic() - started
