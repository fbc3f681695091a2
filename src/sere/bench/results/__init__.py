"""Result files of load generators, read and never rewritten: one module a tool."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from sere.bench.results import aiperf, guidellm, vllm
from sere.bench.results.load import Latency, Load, Tool
from sere.errors import RecordError

TOOLS = (vllm, guidellm, aiperf)


def read_result(path: str | Path) -> tuple[list[Load], str]:
    """Read a result file of ``vllm bench serve``, GuideLLM or AIPerf.

    Returns:
        Its loads, and the file's SHA-256.

    Raises:
        RecordError: If it is missing, cut short, damaged, or of no known tool.

    """
    try:
        data = Path(path).read_bytes()
        raw = json.loads(data)
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}. Name the tool's JSON result.") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is cut short or no JSON. Run the load again.") from error
    for tool in TOOLS:
        if isinstance(raw, dict) and tool.recognises(raw):
            try:
                return tool.read(raw), hashlib.sha256(data).hexdigest()
            except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as error:
                raise RecordError(f"{path} is damaged or incomplete: {error}. Run the load again.") from error
    raise RecordError(
        f"{path} is no result of a known load generator. Give the JSON of vllm bench serve --save-result, "
        "of GuideLLM (benchmarks.json) or of AIPerf (profile_export_aiperf.json)."
    )


__all__ = ["Latency", "Load", "Tool", "read_result"]
