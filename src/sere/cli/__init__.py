"""The command ``sere``: one short file a command."""

from __future__ import annotations

import signal
import sys
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143
_LAST_WORDS = {
    INTERRUPTED: "interrupted; nothing was left half-written.",
    TERMINATED: "terminated; nothing was left half-written.",
}


def main() -> None:
    """Run the command. An interrupt is answered from the first moment on, while torch is still loading."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        from sere.cli.app import run

        run()
    except (KeyboardInterrupt, SystemExit) as ended:
        # Typer turns an interrupt inside a command into an exit with this code, and says nothing.
        code = INTERRUPTED if isinstance(ended, KeyboardInterrupt) else ended.code
        if isinstance(code, int) and code in _LAST_WORDS:
            sys.stderr.write(f"sere: {_LAST_WORDS[code]}\n")
        sys.exit(code)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    # As an exception, so that temporary files go and hooks come off.
    sys.exit(TERMINATED)


__all__ = ["main"]
