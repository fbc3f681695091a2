"""``python -m sere`` is the command ``sere``."""

from sere.cli import main

main()
