"""The plugin in a vLLM that does not use it, and the checks before a server starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sere.engines.vllm import seams
from sere.errors import EngineError
from tests.engines_vllm.conftest import environment


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


def test_importing_the_plugin_imports_neither_vllm_nor_torch():
    code = "import sys, sere.engines.vllm as p; print('torch' in sys.modules, 'vllm' in sys.modules, p.KEY)"
    assert run(code) == "False False sere"


def test_registering_without_a_usable_vllm_only_warns(caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.worker_base", None)
    from sere.engines.vllm import register

    register()
    assert "cannot be used here" in caplog.text


def test_a_missing_seam_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(seams, "missing", lambda: ("vllm.somewhere.BaseRouter",))
    with pytest.raises(EngineError, match=r"lacks what the plugin needs: vllm\.somewhere\.BaseRouter"):
        seams.check()


@pytest.mark.vllm
def test_this_vllm_has_every_seam():
    assert seams.missing() == ()


@pytest.mark.vllm
def test_registering_twice_opens_the_doors_once_and_loads_nothing_of_ours():
    code = (
        "import sys\n"
        "import vllm.engine.arg_utils as arguments\n"
        "from vllm.v1.worker.worker_base import WorkerWrapperBase\n"
        "from sere.engines.vllm import register\n"
        "register()\n"
        "first = arguments.EngineArgs.create_engine_config, WorkerWrapperBase.load_model\n"
        "register()\n"
        "same = first == (arguments.EngineArgs.create_engine_config, WorkerWrapperBase.load_model)\n"
        "ours = sorted(name for name in sys.modules if name.startswith('sere.') and name.count('.') < 3)\n"
        "print(same, ours)\n"
    )
    assert run(code) == "True ['sere.engines', 'sere.engines.vllm', 'sere.version']"


@pytest.mark.vllm
def test_vllm_finds_the_plugin_by_itself():
    code = (
        "from importlib.metadata import entry_points\n"
        "print([entry.value for entry in entry_points(group='vllm.general_plugins') if entry.name == 'sere'])"
    )
    assert run(code) == "['sere.engines.vllm:register']"
