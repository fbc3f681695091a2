"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Checkpoint folder, Hub name, or 'demo' for the bundled model."),
]
ArtifactArgument = Annotated[
    str, typer.Argument(metavar="ARTIFACT", help="Folder that `sere calibrate` wrote, or a Hub name.")
]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
DtypeOption = Annotated[
    Dtype, typer.Option("--dtype", help="Type to load the weights as; auto is the checkpoint's own.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=1024,
        help="CPU threads; the default is what torch would take. Fix it to compare runs.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
TrustOption = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that the checkpoint brings along.")
]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to; made if missing.")]
