"""``sere serve`` and ``sere doctor --url``, without vLLM."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sere.cli import serve
from tests.engines_vllm.test_scrape import INFO, sample


@pytest.fixture
def passed(monkeypatch):
    """What reaches ``vllm serve``."""
    got = []
    monkeypatch.setattr(serve, "run", lambda *arguments: got.append(arguments))
    return got


def test_our_options_become_the_key_and_the_rest_is_passed_through(sere, passed):
    done = sere(
        "serve", "owner/model", "--artifact", "DIR", "--policy", "sere:top_s=2,threshold=0.5", "--port", "80",
        "-tp", "2", "--no-counting", "--dtype=bfloat16", "--enforce-eager",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    settings = {"policy": "sere:top_s=2,threshold=0.5", "artifact": "DIR", "counting": False}
    rest = ["--port", "80", "-tp", "2", "--dtype=bfloat16", "--enforce-eager"]
    assert passed == [("owner/model", settings, rest)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "80"], "MODEL"),
        (["owner/model", "--policy", "sere:top_t=2"], "Did you mean 'top_s'"),
        (["/nowhere/model"], "no checkpoint folder"),
    ],
)
def test_mistakes_are_named_before_vllm_starts(sere, passed, arguments, message):
    done = sere("serve", *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert not passed


class Metrics(BaseHTTPRequestHandler):
    text = ""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    """Serve ``Metrics.text`` at the address that this yields."""
    with HTTPServer(("127.0.0.1", 0), Metrics) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def series(rerouted: float) -> str:
    names = {"steps": 10, "experts_before": 500, "experts_after": 200, "slots": 1000, "decode_rows": 160}
    lines = [INFO, *(sample(name, float(value)) for name, value in names.items())]
    return "\n".join([*lines, sample("slots_rerouted", rerouted)])


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (series(250.0), "re-routing is active"),
        (series(0.0), "no slot was re-routed"),
        (INFO, "no decode step yet"),
        (INFO.replace("sere:top_s=1", "off"), "switched off"),
    ],
)
def test_doctor_says_whether_a_server_is_re_routed(sere, server, monkeypatch, text, verdict):
    monkeypatch.setattr(Metrics, "text", text)
    done = sere("doctor", "--url", server)
    assert done.returncode == 0, done.stderr
    assert verdict in done.stdout
    report = json.loads(sere("doctor", "--url", server, "--json").stdout)
    assert verdict in report["verdict"]
    assert report["steps"] == (10 if "steps" in text else 0)


def test_doctor_refuses_a_server_without_the_plugin(sere, server, monkeypatch):
    monkeypatch.setattr(Metrics, "text", "vllm:num_requests_running 3.0")
    done = sere("doctor", "--url", server)
    assert done.returncode == 1
    assert "publishes no sere_* series" in done.stderr
    both = sere("doctor", "demo", "--url", server)
    assert both.returncode == 1
    assert "not both" in both.stderr
