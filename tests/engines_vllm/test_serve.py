"""The thin wrapper of ``vllm serve``."""

from __future__ import annotations

import json

import pytest

from sere.engines.vllm.serve import command_line
from sere.errors import EngineError


def test_the_key_is_added_and_the_rest_passed_through():
    got = command_line("m", {"policy": "none"}, ["--port", "80", "--dtype=bfloat16"])
    assert got[:3] == ["serve", "m", "--additional-config"]
    assert json.loads(got[3]) == {"sere": {"policy": "none"}}
    assert got[4:] == ["--port", "80", "--dtype=bfloat16"]


@pytest.mark.parametrize("own", [["--additional-config", '{"a": 1}'], ['--additional-config={"a": 1}']])
def test_an_additional_config_of_the_users_own_is_kept(own):
    got = command_line("m", {}, [*own, "--port", "80"])
    assert json.loads(got[3]) == {"a": 1, "sere": {}}
    assert got[4:] == ["--port", "80"]


@pytest.mark.parametrize(
    ("own", "message"),
    [("{a: 1}", "no JSON"), ("[1]", "must be a JSON object"), ('{"sere": {}}', "has a 'sere' key already")],
)
def test_a_wrong_additional_config_is_named(own, message):
    with pytest.raises(EngineError, match=message):
        command_line("m", {}, ["--additional-config", own])
