"""Choose between streaming a checkpoint and loading it whole, and show how far a calibration has come."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from sere.artifact import Artifact
from sere.calibration import CalibrationConfig, Progress, calibrate
from sere.calibration.stream.estimate import LayerProgress
from sere.cli.loading import DEMO, DTYPES, load, load_tokenizer, pick_device, require_transformers, resolve
from sere.cli.options import Dtype
from sere.cli.output import plain
from sere.errors import EngineError


@dataclass(frozen=True)
class Request:
    """What the command was asked for; see its options."""

    model: str
    out: Path
    config: CalibrationConfig
    dtype: Dtype
    device: str
    trust_remote_code: bool
    in_memory: bool
    restart: bool


def leads() -> bool:
    """Whether this process is the one that writes and speaks, of those that ``torchrun`` started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextlib.contextmanager
def held(out: Path) -> Iterator[None]:
    """Keep other runs from this output.

    Raises:
        CalibrationError: If one is at work on it.

    """
    from sere.calibration.stream.work import locked

    with locked(out) if leads() else contextlib.nullcontext():
        yield


def finished(out: Path) -> None:
    """Throw away the work of a run whose artifact is written."""
    from sere.calibration.stream.work import folder_for, forget

    forget(folder_for(out))


def measure(request: Request, texts: Sequence[str], data_name: str, display: Display) -> Artifact:
    """Calibrate, streamed if the model is a folder with safetensors files.

    Raises:
        EngineError: If something that it needs is missing.

    """
    require_transformers()
    source = Path(resolve(request.model))
    if not request.in_memory and _streams(source):
        return _streamed(request, source, texts, data_name, display)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise EngineError("only a streamed calibration can be shared by processes. Run it without torchrun.")
    model, tokenizer = load(
        request.model,
        dtype=request.dtype,
        device=request.device,
        trust_remote_code=request.trust_remote_code,
    )
    return calibrate(
        model,
        tokenizer,
        texts,
        config=request.config,
        progress=display.update,
        model_id=_name(request.model),
        data_name=data_name,
    )


def _name(model: str) -> str:
    """Return the name to record: the bundled model's own, or what was typed."""
    if model != DEMO:
        return model
    from sere.demo.model import NAME

    return NAME


def _streams(source: Path) -> bool:
    from sere.calibration.stream.shards import can_stream

    if not source.is_dir() or not can_stream(source):
        return False
    if importlib.util.find_spec("greenlet") is None:
        raise EngineError(
            "reading a checkpoint layer by layer needs greenlet. Run: pip install 'sere-moe[hf]', or add "
            "--in-memory."
        )
    return True


def _streamed(
    request: Request, source: Path, texts: Sequence[str], data_name: str, display: Display
) -> Artifact:
    from sere.calibration.stream import calibrate_streamed, folder_for

    device = pick_device(request.device)
    if request.device == "auto" and device.type == "cuda":
        device = pick_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    return calibrate_streamed(
        source,
        load_tokenizer(request.model, trust_remote_code=request.trust_remote_code),
        texts,
        config=request.config,
        dtype=DTYPES[request.dtype],
        device=device,
        work=folder_for(request.out),
        restart=request.restart,
        trust_remote_code=request.trust_remote_code,
        progress=display.update,
        notice=display.say,
        model_id=_name(request.model),
        data_name=data_name,
    )


class Display:
    """A progress bar with the speed and the time left, on standard error."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            disable=quiet,
        )
        self.task: TaskID = self.bar.add_task("calibrating", total=1.0, left="")

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def say(self, sentence: str) -> None:
        """Print a sentence above the bar."""
        if not self.quiet:
            plain(self.console, sentence)

    def update(self, state: Progress) -> None:
        """Show one more layer of one more batch done."""
        left = f"{state.seconds_left:.0f} s left, {state.tokens_per_second:,.0f} tokens/s"
        batch = f"batch {state.batch + 1}/{state.batches}"
        if isinstance(state, LayerProgress):
            label = f"layer {state.layers_done + 1}/{state.layers}, {batch}"
        else:
            label = f"{batch}, layer {state.layers_done}/{state.layers}"
        self.bar.update(self.task, completed=state.fraction, description=label, left=left)
