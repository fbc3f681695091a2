"""``sere report``: records as one page to show to others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sere.cli.options import JsonOption
from sere.cli.output import console, plain


def command(
    records: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECORD.json... [ARTIFACT]",
            help="Records of sere compare, demo, sweep and bench, of benchmarks/vllm_decode.py; the "
            "artifact's folder.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    keep: Annotated[
        float,
        typer.Option(help="Share of the unmodified quality that the opening sentence's policy should keep."),
    ] = 0.95,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Allow records of different models; the page says so.")
    ] = False,
    title: Annotated[str | None, typer.Option(help="Title; the model's name if left out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make one HTML page from the records of your runs, to read and to show.

    The page says in a sentence what was done and what came of it; then come
    quality against cost, every table with its intervals, distinct experts by
    layer, similarity maps (with ARTIFACT), where it does not pay, settings to
    copy, and how each figure was measured. It needs no network, and reads well
    on a phone, on paper, in light and in dark.

      sere compare MODEL DIR --out compare.json
      sere report compare.json DIR --out report.html

    Records of different models are refused; speed measured on random weights
    may stand beside them and is marked.
    """
    from sere.evaluation.files import check_file
    from sere.report import write_report

    check_file(out)
    write_report(records, out, keep=keep, mixed=mixed, title=title)
    size = out.stat().st_size
    if as_json:
        typer.echo(
            json.dumps({"report": str(out), "bytes": size, "records": [str(path) for path in records]})
        )
    else:
        plain(console(), f"Report: {out} ({size / 1e6:.1f} MB)")
