"""``sere demo``: the whole job on the bundled model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sere.cli.loading import require_transformers
from sere.cli.options import JsonOption
from sere.cli.output import console


def command(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the artifact and the record.")
    ] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A short run that shows the same tables with rougher figures.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, max=1024, help="CPU threads; the default is 1 or 2, by trial."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Calibrate the bundled model, re-route it and compare, side by side.

    Prints two tables: what re-routing costs in quality on a small model that
    was really trained, and what it gains in speed at the layer size of a
    30-billion-parameter model with random weights. DIR/demo.json holds all
    figures, DIR/artifact the calibration.
    """
    require_transformers()
    from sere.demo.run import run_demo

    shown = Console(quiet=True) if as_json else console()
    record = run_demo(out, quick=quick, threads=threads, console=shown)
    if as_json:
        typer.echo(record.model_dump_json(indent=2))
