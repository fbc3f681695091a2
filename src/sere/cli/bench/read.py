"""``sere bench read``: result files of other load generators as a record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sere.cli.bench.tables import served_tables
from sere.cli.options import JsonOption
from sere.cli.output import console, plain


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="VARIANT=FILE...",
            help="What was served and the tool's JSON: unmodified=base.json sere:top_s=1=fast.json. "
            "FILE alone is the unmodified server.",
            show_default=False,
        ),
    ],
    artifact: Annotated[
        str | None, typer.Option(help="Artifact that was served, to tell the model; folder or Hub name.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the record.")] = Path("bench.json"),
    as_json: JsonOption = False,
) -> None:
    """Put results of vllm bench serve, GuideLLM or AIPerf side by side, as one record.

    For who has driven the servers already. Each FILE is the tool's own JSON
    (vllm bench serve --save-result, GuideLLM's benchmarks.json, AIPerf's
    profile_export_aiperf.json); it is read and not changed, and its hash is
    kept. Use the same rates, prompts and seeds for every variant. Files of one
    variant at one rate are repetitions: the n-th is set against the n-th of
    the unmodified server.

      sere bench read unmodified=a.json none=b.json sere:top_s=1=c.json
      sere report bench.json

    These tools do not know what was re-routed: distinct experts are missing.
    """
    from sere.artifact import Artifact
    from sere.bench.served.reading import read_named, read_served
    from sere.evaluation.files import check_file

    check_file(out)
    record = read_served(
        [read_named(text) for text in files],
        None if artifact is None else Artifact.from_pretrained(artifact),
    )
    record.save(out)
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
        return
    for table in served_tables(record):
        console().print(table)
    left_out = record.config.get("left_out")
    for each in left_out if isinstance(left_out, list) else []:
        plain(console(), f"Left out, it has no request rate: {each}")
    plain(console(), f"Record: {out}")
