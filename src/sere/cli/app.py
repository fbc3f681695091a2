"""The command-line application and what its exit codes mean."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer
from rich.console import Console

from sere.cli import calibrate, compare, demo, doctor, inspect
from sere.errors import SereError
from sere.version import __version__

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

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

MODEL is a folder with a checkpoint, a name on the Hugging Face Hub,
or the word [cyan]demo[/cyan] for the bundled model.
A policy is written NAME:key=value,key=value.

Exit codes: 0 done; 1 refused or failed, the message says what to do;
2 wrong usage; 130 interrupted.
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


def main() -> None:
    """Run the command; known errors become one line on standard error and exit code 1."""
    try:
        app()
    except (KeyboardInterrupt, SystemExit) as ended:
        # Typer turns an interrupt inside a command into an exit with this code, and says nothing.
        code = INTERRUPTED if isinstance(ended, KeyboardInterrupt) else ended.code
        if code == INTERRUPTED:
            _complain("interrupted; nothing was left half-written.")
        sys.exit(code)
    except SereError as error:
        _complain(str(error))
        sys.exit(FAILED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILED)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EPERM):
            raise
        _complain(f"{error.strerror}: {error.filename or 'output'}. Free the space or choose another output.")
        sys.exit(FAILED)


def _complain(message: str) -> None:
    Console(stderr=True).print("[bold red]sere:[/bold red] ", end="")
    Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
