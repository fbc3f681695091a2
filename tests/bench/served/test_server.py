"""A server is waited for, stopped with all of its processes, and its failures are named."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sere.bench.served import server as module
from sere.bench.served.server import cause, serving, stop
from sere.errors import EngineError

HEALTHY = """
import http.server, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
print(child.pid, flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
FAILING = """
import sys
print("ValueError: not enough memory. Ask for less.")
print("Traceback", file=sys.stderr)
for line in range(99):
    print("  at line", line)
print("RuntimeError: Engine core initialization failed.")
sys.exit(3)
"""


def server(script, log, timeout=30.0):
    return serving(
        lambda port: [sys.executable, "-c", script, str(port)], log, environment=os.environ, timeout=timeout
    )


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_it_is_there_when_it_is_healthy_and_nothing_is_left_of_it(tmp_path):
    with server(HEALTHY, tmp_path / "logs" / "a.log") as running:
        assert running.start_seconds > 0
        child = int(running.log.read_text().split()[0])
        assert alive(child)
    assert running.process.returncode is not None
    end = time.monotonic() + 5
    while alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(child)


def test_a_server_that_does_not_start_names_its_first_error_and_shows_the_end_of_its_log(tmp_path):
    log = tmp_path / "a.log"
    with pytest.raises(EngineError) as caught, server(FAILING, log):
        pass
    said = str(caught.value)
    assert said.startswith(
        "the server ended with code 3: ValueError: not enough memory. Ask for less. The end"
    )
    assert "RuntimeError: Engine core initialization failed." in said
    assert str(log) in said
    assert "at line 98" in said
    assert "at line 2\n" not in said


def test_a_server_that_never_answers_is_given_up(tmp_path):
    script = "import time; print('loading', flush=True); time.sleep(99)"
    with pytest.raises(EngineError) as caught, server(script, tmp_path / "a.log", timeout=2.0):
        pass
    said = str(caught.value)
    assert "did not answer within 2 s. The end of" in said
    assert "loading" in said
    assert "--start-timeout" in said


def test_a_server_that_ends_later_is_seen(tmp_path):
    with server(HEALTHY, tmp_path / "a.log") as running:
        running.check()
        stop(running.process)
        with pytest.raises(EngineError, match="the server ended with code"):
            running.check()


def test_a_full_disk_is_named_where_no_log_can_say_so(tmp_path, monkeypatch):
    log = tmp_path / "a.log"
    log.write_text("")
    assert cause(log) == ""
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _place: SimpleNamespace(free=0))
    assert cause(log) == f": no space is left in {tmp_path}"
    assert cause(tmp_path / "no" / "such.log") == f": no space is left in {tmp_path / 'no'}"
