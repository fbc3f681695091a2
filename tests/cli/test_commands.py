"""The commands as a user meets them: what they print, what they write, how they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import environment


def test_help_names_the_first_steps_and_the_exit_codes(sere):
    shown = sere("--help")
    assert shown.returncode == 0
    for word in ("sere demo", "sere doctor MODEL", "sere calibrate", "sere compare", "Exit codes"):
        assert word in shown.stdout


def test_the_version_is_the_packages(sere):
    from sere import __version__

    assert sere("--version").stdout.strip() == f"sere {__version__}"


def test_doctor_finds_the_layers_from_the_config_alone(sere, small, tmp_path):
    (tmp_path / "config.json").write_bytes((small / "config.json").read_bytes())
    report = json.loads(sere("doctor", tmp_path, "--json").stdout)
    assert report["engines"]["transformers"] is True
    assert [layer["name"] for layer in report["model"]["layers"]] == [
        "model.layers.0.mlp.experts",
        "model.layers.1.mlp.experts",
    ]
    assert {(layer["experts"], layer["top_k"]) for layer in report["model"]["layers"]} == {(8, 4)}


def test_calibrate_then_inspect_then_compare(sere, small, artifact, tmp_path):
    inspected = sere("inspect", artifact)
    assert inspected.returncode == 0
    assert "8 x 32 tokens" in inspected.stdout
    record = tmp_path / "record.json"
    compared = sere(
        "compare", small, artifact, "-p", "sere:top_s=1", "-p", "top_k:k=2", "-b", 4,
        "--sequences", 4, "--length", 40, "--speed-rounds", 1, "--out", record,
    )  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    assert "4 live sequences" in compared.stdout
    results = {result["policy"]: result for result in json.loads(record.read_text())["results"]}
    assert list(results) == ["unmodified", "none", "sere:top_s=1", "top_k:k=2"]
    assert results["none"]["fidelity"]["kl"] == 0
    assert results["sere:top_s=1"]["experts"]["after"] < results["none"]["experts"]["after"]
    assert results["sere:top_s=1"]["fidelity"]["kl"] > 0


def test_calibrating_twice_gives_identical_files_but_for_the_run(sere, small, artifact, tmp_path):
    again = tmp_path / "again"
    assert sere("calibrate", small, "-o", again, "--sequences", 8, "--length", 32).returncode == 0
    for name in ("README.md", "sere.safetensors"):
        assert (again / name).read_bytes() == (artifact / name).read_bytes()
    first, second = (json.loads((folder / "sere.json").read_text()) for folder in (artifact, again))
    runs = [manifest["calibration"].pop("provenance") for manifest in (first, second)]
    assert first == second
    assert {run.pop("created") < "9" for run in runs} == {True}
    commands = [run.pop("command") for run in runs]
    assert [command[:2] for command in commands] == [["sere", "calibrate"]] * 2
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate", "{dense}", "-o", "{out}"], "is dense"),
        (["calibrate", "./nowhere", "-o", "{out}"], "no checkpoint folder"),
        (["calibrate", "{small}", "-o", "{out}", "--data", "nothing.txt"], "no file nothing.txt"),
        (["calibrate", "{small}", "-o", "{out}", "--data", "{empty}"], "holds no text"),
        (["calibrate", "{small}", "-o", "{out}", "--sequences", "999999"], "--sequences"),
        (["calibrate", "{small}", "-o", "{out}", "--metric", "frobenious"], "Did you mean 'frobenius'"),
        (["calibrate", "{small}", "-o", "{small}/config.json"], "is a file"),
        (["calibrate", "{small}", "-o", "{artifact}"], "--force"),
        (["calibrate", "{small}", "-o", "/proc/sere"], "cannot write"),
        (["calibrate", "{small}", "-o", "{out}", "--device", "abacus"], "not usable here"),
        (["inspect", "{out}"], "no folder with an artifact"),
        (["compare", "demo", "{artifact}", "-p", "sere:top_s=1"], "was made for"),
        (["compare", "{small}", "-p", "sere:top_s=1"], "needs an artifact"),
        (["compare", "{small}", "{artifact}", "-p", "seer"], "Did you mean 'sere'"),
        (["doctor", "{dense}"], "is dense"),
        (["calibrate", "{truncated}", "-o", "{out}"], "is truncated"),
        (["calibrate", "{holed}", "-o", "{out}"], "lacks 1 of the weights"),
        (["calibrate", "", "-o", "{out}"], "no checkpoint folder ''"),
        (["calibrate", "{small}", "-o", "{out}", "--device", "meta"], "computes nothing"),
        (
            ["compare", "{small}", "{artifact}", "-p", "sere", "--metric", "cka_rbf_biased"],
            "cannot serve metric",
        ),
        (["compare", "{small}", "{artifact}", "--tasks", "nowhere.jsonl"], "cannot be read"),
        (["compare", "{small}", "{artifact}", "--out", "{small}"], "is a folder"),
        (["inspect", "x" * 300], "name too long"),
    ],
)
def test_bad_input_ends_with_code_1_and_one_line_that_helps(
    sere, small, dense, broken, artifact, tmp_path, arguments, message
):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    places = {
        "small": small, "dense": dense, "artifact": artifact, "out": tmp_path / "out", "empty": empty
    } | broken  # fmt: skip
    ended = sere(*(argument.format(**places) for argument in arguments))
    complaint = [line for line in ended.stderr.splitlines() if line.startswith("sere: ")]
    assert ended.returncode == 1
    assert len(complaint) == 1
    assert message in complaint[0]
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["calibrate"],
        ["frobnicate"],
        ["compare", "demo", "--dtype", "int8"],
        ["compare", "demo", "--mode", "guess"],
        ["compare", "demo", "--threads", "0"],
        ["compare", "demo", "--batch-size", "many"],
    ],
)
def test_wrong_usage_ends_with_code_2(sere, arguments):
    assert sere(*arguments).returncode == 2


def answer_signals() -> None:
    """Undo what a shell does to children in the background: they ignore interrupts, and so do theirs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_leaves_nothing_behind(small, tmp_path, number, code, word):
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "sere", "calibrate", str(small), "-o", str(out), "--sequences", "400"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=answer_signals,
    )
    deadline = time.monotonic() + 120
    while not out.exists() and time.monotonic() < deadline:  # made just before the model is loaded
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert word in errors
    assert "Traceback" not in errors
    assert list(out.iterdir()) == []


def test_an_interrupt_while_torch_is_still_loading_is_answered_too():
    program = (
        "import builtins, os, signal, sys\n"
        "from sere.cli import main\n"
        "load = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'torch':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "sys.argv = ['sere', '--version']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=answer_signals,
    )
    assert done.returncode == 130
    assert done.stderr == "sere: interrupted; nothing was left half-written.\n"


def test_the_demonstrations_record_is_printed_alone_with_json(sere, tmp_path, monkeypatch):
    from sere.demo import run

    class Record:
        def model_dump_json(self, indent):
            return json.dumps({"kind": "sere-demo"}, indent=indent)

    def fake(out, *, quick, threads, console):
        console.print("a table")
        return Record()

    monkeypatch.setattr(run, "run_demo", fake)
    assert json.loads(sere("demo", "--quick", "--json", "-o", tmp_path).stdout) == {"kind": "sere-demo"}
    assert sere("demo", "--quick", "-o", tmp_path).stdout.strip() == "a table"
