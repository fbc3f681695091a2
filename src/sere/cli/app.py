"""The command-line application and what its exit codes mean."""

from __future__ import annotations

import errno
import sys
import warnings
from typing import Annotated, TextIO

import typer
from rich.console import Console

from sere.cli import (
    bench,
    calibrate,
    compare,
    demo,
    doctor,
    evaluate,
    inspect,
    profile,
    report,
    serve,
    sweep,
    tune,
)
from sere.cli.output import plain
from sere.errors import SereError
from sere.version import __version__

FAILED = 1
PLACES = (
    errno.ENOSPC,
    errno.EACCES,
    errno.EROFS,
    errno.EDQUOT,
    errno.EPERM,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)
"""What is wrong with a place on disk, and no fault of the program."""

HELP = """
Decode batches of Mixture-of-Experts models faster by reading fewer experts per step.

[bold]First time here?[/bold]

  1. [cyan]sere demo[/cyan]
     the whole job on the bundled model, in minutes
  2. [cyan]sere doctor MODEL[/cyan]
     would your model be re-routed, and where
  3. [cyan]sere calibrate MODEL --out DIR[/cyan]
     measure once how alike its experts are
  4. [cyan]sere compare MODEL DIR --policy sere:top_s=2,threshold=0.5[/cyan]
     experts read, loss and speed, side by side
  5. [cyan]sere serve MODEL --artifact DIR --policy sere:top_s=2,threshold=0.5[/cyan]
     vLLM with the policy on
  6. [cyan]sere doctor --url http://localhost:8000[/cyan]
     proof that the server re-routes

MODEL is a folder with a checkpoint, a name on the Hugging Face Hub,
or the word [cyan]demo[/cyan] for the bundled model.
A policy is written NAME:key=value,key=value.

Exit codes: 0 done; 1 refused or failed, the message says what to do;
2 wrong usage; 130 interrupted; 143 terminated.
"""

app = typer.Typer(
    help=HELP,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", rich_help_panel="Start")(demo.command)
app.command("doctor", rich_help_panel="Start")(doctor.command)
app.command("calibrate", rich_help_panel="Work")(calibrate.command)
app.command("inspect", rich_help_panel="Work")(inspect.command)
app.command("compare", rich_help_panel="Work")(compare.command)
app.command("sweep", rich_help_panel="Work")(sweep.command)
app.command("eval", rich_help_panel="Work")(evaluate.command)
app.command("profile", rich_help_panel="Work")(profile.command)
app.command("tune", rich_help_panel="Work")(tune.command)
app.add_typer(bench.app, name="bench", rich_help_panel="Work")
app.command("report", rich_help_panel="Work")(report.command)
app.command("serve", rich_help_panel="Work", context_settings=serve.CONTEXT)(serve.command)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sere {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Hold the options of the command itself."""


def run() -> None:
    """Run the command; known errors become one line on standard error and exit code 1."""
    warnings.showwarning = _show_warning
    try:
        app()
    except SereError as error:
        _complain(str(error))
        sys.exit(FAILED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILED)
    except OSError as error:
        if error.errno not in PLACES:
            raise
        _complain(f"{error.strerror}: {error.filename or 'output'}. Free the space or choose another place.")
        sys.exit(FAILED)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Show our own warnings without the line of code; hide the libraries' advice to programmers."""
    text = str(message)
    if text.startswith("sere: "):
        _complain(text.removeprefix("sere: "))
    elif not issubclass(category, DeprecationWarning | FutureWarning):
        sys.stderr.write(f"{category.__name__}: {text}\n")


def _complain(message: str) -> None:
    errors = Console(stderr=True)
    errors.print("[bold red]sere:[/bold red] ", end="")
    plain(errors, message)
