"""The command ``sere``: one short file a command."""

from sere.cli.app import main

__all__ = ["main"]
