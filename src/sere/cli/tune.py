"""``sere tune``: from a tolerance to operating points in the artifact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.console import Console
from rich.text import Text

from sere.artifact import Artifact
from sere.calibration import load_texts
from sere.cli.loading import load
from sere.cli.options import (
    ArtifactArgument,
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    ThreadsOption,
    TrustOption,
)
from sere.cli.output import console, plain, shell
from sere.errors import TuningError

if TYPE_CHECKING:
    from sere.tuning import TuneRecord

RECORD = "tune.json"
POINTS = "points.jsonl"
PROMPTS = "prompts.jsonl"


def command(
    model: ModelArgument,
    artifact: ArtifactArgument,
    tolerance: Annotated[
        str,
        typer.Option(
            "--tolerance",
            "-t",
            help="Most loss: 'kl<=0.02', 'agreement>=0.99', 'perplexity_change<=1%'; with --task "
            "'accuracy_loss<=0.5pt'.",
        ),
    ],
    batch_size: Annotated[
        int, typer.Option("--batch", "-b", min=1, help="Live sequences, where they are always as many.")
    ] = 16,
    traffic: Annotated[
        str | None,
        typer.Option(
            help="Decoding steps by live sequences instead: '1:10,4:20,16:70', or a file of that. The policy "
            "may then differ from batch size to batch size; the tolerance holds at each."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Texts (text, .jsonl, .parquet), never calibrated on; the bundled ones if left out."
        ),
    ] = None,
    field: Annotated[
        str, typer.Option(help="Field or column with the text, for --data in .jsonl and .parquet.")
    ] = "text",
    task: Annotated[
        str | None,
        typer.Option(
            help="Prompts with one right answer, for a tolerance on accuracy: a .jsonl file with prompt and "
            "answer, or 'bundled' (for the bundled model). Half of them is held out, too."
        ),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            "-r",
            help="Recipe to search, as in `sere sweep`; repeatable. Default: all that ARTIFACT can serve.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Folder for the artifact with its operating points. Default: ARTIFACT, in place."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of this search; started again, it goes on there.")
    ] = Path("runs/tune"),
    shares: Annotated[
        int | None,
        typer.Option(
            min=4, help="Shares of the texts, half of them held out. Default: as many as they give, up to 16."
        ),
    ] = None,
    sequences: Annotated[
        int, typer.Option(help="Sequences of a share, at each batch size: whole batches, at least one.")
    ] = 16,
    length: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 96,
    prompt: Annotated[
        int, typer.Option(help="Leading tokens that are prompt: neither re-routed nor scored.")
    ] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the draw of the half that is held out.")] = 0,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to use; the artifact's default if left out.")
    ] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust_remote_code: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find settings of MODEL that keep a tolerance and read the fewest experts.

    Searches all recipes on one half of your texts, with a safety margin, and
    measures what it found on the other half, which the search never touches.
    Writes the operating points `careful` (a quarter of the tolerance), `balanced`
    (half of it) and `fast` (all of it) into ARTIFACT; every engine takes their
    names for a policy. A point that the held-out half does not confirm is not
    written. If none keeps the tolerance, the unmodified model is recommended.
    """
    from sere.cli.tune_tables import show
    from sere.demo.tasks import HELDOUT_COUNT
    from sere.evaluation.compare import task_examples
    from sere.evaluation.config import CompareConfig
    from sere.evaluation.files import check_writable
    from sere.evaluation.sweep import Evaluator, SweepConfig
    from sere.tuning import Accuracy, Tolerance, Traffic, most_shares, tune, write
    from sere.tuning.ladder import ladders

    limit = Tolerance.parse(tolerance)
    steps = Traffic.of([(batch_size, 1.0)]) if traffic is None else Traffic.parse(traffic)
    statistics = Artifact.from_pretrained(artifact)
    folder = _folder(artifact, save)
    layer = max(statistics.layers, key=lambda each: each.num_experts)
    ladders(recipe, layer.num_experts, layer.top_k, statistics)
    config = SweepConfig(seeds=shares or 1, sequences=sequences, sequence_length=length, prompt_tokens=prompt)
    texts = None if data is None else load_texts(data, field=field)
    prompts = task_examples(CompareConfig(tasks=task, examples_per_task=HELDOUT_COUNT))
    if limit.on_prompts and not prompts:
        raise TuningError(f"{limit.text} is measured on prompts with answers. Give them with --task.")
    check_writable(out)
    if threads:
        torch.set_num_threads(threads)
    loaded, tokenizer = load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    if shares is None:
        config = most_shares(tokenizer, texts, config, max(steps.shares))
    evaluator = Evaluator(loaded, tokenizer, statistics, texts, config, metric=metric, cache=out / POINTS)
    accuracy = Accuracy(evaluator, prompts, seed, out / PROMPTS) if prompts else None
    with Console(stderr=True).status("starting") as status:
        record = tune(
            evaluator,
            limit,
            steps,
            recipes=recipe,
            seed=seed,
            accuracy=accuracy,
            say=lambda text: status.update(Text(text)),
        )
    record.save(out / RECORD)
    write(record, artifact, folder)
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
        return
    show(record)
    plain(console(), _advice(record, model, folder))
    plain(console(), f"Record: {out / RECORD}. Operating points: {folder}")


def _folder(artifact: str, save: Path | None) -> Path:
    """Where the artifact with its points goes.

    Raises:
        TuningError: If that would be the Hub.

    """
    if save is not None:
        return save
    if not Path(artifact).exists():
        raise TuningError(
            f"{artifact} is not a folder here. Say with --save where its copy with points goes."
        )
    return Path(artifact).parent if Path(artifact).is_file() else Path(artifact)


def _advice(record: TuneRecord, model: str, folder: Path) -> str:
    if record.recommended is None:
        return f"Nothing keeps {record.tolerance} here. Serve the unmodified model, or tolerate more."
    served = shell("sere", "serve", model, "--artifact", folder, "--policy", record.recommended)
    return f"Recommended: {record.recommended}\n{served}"
