"""``sere profile``: what a decoding step costs on this device, and what policies save of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.text import Text

from sere.artifact import Artifact
from sere.calibration import load_texts
from sere.cli.loading import load
from sere.cli.options import DeviceOption, DtypeOption, JsonOption, ModelArgument, ThreadsOption, TrustOption
from sere.cli.output import console, plain
from sere.errors import ArtifactError


def command(
    model: ModelArgument,
    artifact: Annotated[
        str | None,
        typer.Argument(
            metavar="[ARTIFACT]",
            help="Folder that `sere calibrate` wrote, or a Hub name; not needed by all policies.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="NAME:key=value, or an operating point's name; repeatable. Default: the artifact's "
            "operating points, sere:top_s=2 and sere:top_s=1; without an artifact top_k:k=1.",
        ),
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option("--batch-size", "-b", help="Live sequences; repeatable. Default: 1 4 16 48."),
    ] = None,
    levels: Annotated[int, typer.Option(help="Numbers of distinct experts at each batch size.")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds; the middle of all times counts.")] = 3,
    data: Annotated[
        str | None,
        typer.Option(
            help="Texts or prompts (text, .jsonl, .parquet); the bundled held-out ones if left out."
        ),
    ] = None,
    field: Annotated[
        str, typer.Option(help="Field or column with the text, for --data in .jsonl and .parquet.")
    ] = "text",
    write: Annotated[
        bool, typer.Option("--write", help="Put the cost model into ARTIFACT, for the guard 'auto'.")
    ] = False,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to use; the artifact's default if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of forced experts and of the choice of texts.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the JSON record.")] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust_remote_code: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what a decoding step of MODEL costs on this device, and predict what policies save.

    Times steps at several batch sizes, each at several numbers of distinct
    experts (routing is forced for it), and fits fixed cost, cost of an expert and
    cost of a row. Then counts, on text, the experts that each policy reads, and
    times the policy itself. The machine should be idle.
    """
    from sere.cli.tables import grid_table
    from sere.evaluation.files import check_file
    from sere.profiling import ProfileConfig, profile, tables
    from sere.profiling.texts import sequences

    config = ProfileConfig(
        batch_sizes=tuple(sorted(set(batch_size))) if batch_size else ProfileConfig.batch_sizes,
        levels=levels,
        rounds=rounds,
        seed=seed,
    )
    statistics = None if artifact is None else Artifact.from_pretrained(artifact)
    folder = _folder(artifact) if write else None
    texts = None if data is None else load_texts(data, field=field)
    if out is not None:
        check_file(out)
    if threads:
        torch.set_num_threads(threads)
    loaded, tokenizer = load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    ids = sequences(loaded, tokenizer, texts, config)
    with Console(stderr=True).status("starting") as status:
        record = profile(
            loaded,
            ids,
            statistics,
            policy or _policies(statistics),
            config,
            metric=metric,
            progress=lambda text: status.update(Text(text)),
        )
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
    else:
        for grid in (tables.steps(record), tables.predictions(record)):
            console().print(grid_table(grid))
    if out is not None:
        record.save(out)
    if folder is not None and statistics is not None:
        statistics.with_cost(record.cost).save_pretrained(folder)
    written = [str(place) for place in (out, folder) if place is not None]
    if written and not as_json:
        plain(console(), f"Written: {' '.join(written)}")


def _policies(artifact: Artifact | None) -> list[str]:
    if artifact is None:
        return ["top_k:k=1"]
    return [*artifact.operating_points, "sere:top_s=2", "sere:top_s=1"]


def _folder(artifact: str | None) -> Path:
    """Return the artifact's folder, to write to.

    Raises:
        ArtifactError: If none is given, or it lies on the Hub, or cannot be written to.

    """
    if artifact is None or not Artifact.exists_in(artifact):
        raise ArtifactError(
            f"--write needs the folder of an artifact, not {artifact!r}. Name the folder that "
            "'sere calibrate' wrote, or save the artifact into one."
        )
    from sere.evaluation.files import check_writable

    return check_writable(artifact)
