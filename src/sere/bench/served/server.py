"""A server of one's own: started on a free port, waited for, and stopped with all of its processes."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sere.errors import EngineError

HOST: Final = "127.0.0.1"
TAIL_LINES = 25
"""Lines of a log that an error shows."""
_PAUSE = 0.3
_NAMED_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception): .*")
_LONGEST = 500
_LEAST_FREE = 2**16
_PATIENCE = ((signal.SIGINT, 45.0), (signal.SIGTERM, 15.0))
"""How to ask a server to stop, and seconds to wait for it."""


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        process: Its first process, the leader of its group.
        port: Where it listens.
        log: What it printed.
        start_seconds: How long it took to answer.

    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    start_seconds: float = 0.0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.port}"

    def check(self) -> None:
        """See that it still runs.

        Raises:
            EngineError: If it has ended, with the end of its log.

        """
        if self.process.poll() is not None:
            raise EngineError(
                f"the server ended with code {self.process.returncode}{cause(self.log)}. The end of "
                f"{self.log}:\n{tail(self.log)}\nSee the whole log for the reason."
            )


@contextmanager
def serving(
    command: Callable[[int], Sequence[str]],
    log: Path,
    *,
    environment: Mapping[str, str],
    timeout: float,
    waiting: Callable[[], None] = lambda: None,
) -> Iterator[Server]:
    """Start a server and wait until it is healthy; at the end no process of it is left.

    Args:
        command: Makes the command line for a port.
        log: File for its output, made anew.
        environment: The server's whole environment.
        timeout: Seconds that it may take to start.
        waiting: Called while waiting.

    Raises:
        EngineError: If it ends or does not answer in time, with the end of its log.

    """
    port = free_port()
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("wb") as stream:
        # A group of its own: an interrupt at the keyboard reaches us, and we stop it in order.
        process = subprocess.Popen(  # noqa: S603 - the user's own engine
            list(command(port)),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(process, port, log)
    try:
        while not _healthy(port):
            server.check()
            if time.monotonic() - started > timeout:
                raise EngineError(
                    f"the server did not answer within {timeout:.0f} s{cause(log)}. The end of {log}:\n"
                    f"{tail(log)}\n"
                    "Give it more time with --start-timeout, or see the whole log."
                )
            waiting()
            time.sleep(_PAUSE)
        yield Server(process, port, log, time.monotonic() - started)
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server in order, and whatever is left of its group by force."""
    try:
        for how, patience in _PATIENCE:
            if process.poll() is None:
                process.send_signal(how)
                try:
                    process.wait(patience)
                except subprocess.TimeoutExpired:
                    continue
    finally:
        # A second interrupt may have cut the waiting short: still nothing may be left.
        _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.killpg(process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.05)


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def cause(log: Path) -> str:
    """Say why a process failed, as a part of a sentence: a full disk, or the first error that its log names.

    The end of an engine's log only says that another process failed; the reason stands further up. On a full
    disk the log does not say so either. Empty if nothing is found.
    """
    try:
        if shutil.disk_usage(log.parent).free < _LEAST_FREE:
            return f": no space is left in {log.parent}"
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = _NAMED_ERROR.search(text)
    return f": {found[0][:_LONGEST].rstrip('. ')}" if found else ""


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Give the last lines of a log, indented."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"  (no log: {error.strerror})"
    last = [line.rstrip()[:300] for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(f"  {line}" for line in last) or "  (it is empty)"
