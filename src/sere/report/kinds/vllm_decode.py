"""The record of ``benchmarks/vllm_decode.py``: decode speed in vLLM on random weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sere.provenance import Provenance
from sere.report.blocks import Block, Charts, Section, Table, Text
from sere.report.charts.dots import dots
from sere.report.finding import Finding, Value
from sere.report.form import number, speedup
from sere.report.made import made
from sere.report.source import Source

EXPERTS = 128


def recognises(raw: Mapping[str, Any]) -> bool:
    """Say whether it is this benchmark's."""
    return raw.get("benchmark") == "vllm_decode"


def read(text: str, name: str, sha256: str) -> Source:
    """Parse it; older records say less about their run."""
    raw = json.loads(text)
    options, machine = raw["options"], raw["machine"]
    run = Provenance.model_validate(raw["provenance"]) if "provenance" in raw else None
    rows = made(run)
    if run is None:
        rows["hardware"] = ", ".join(str(machine[key]) for key in ("gpu", "cpu") if machine.get(key))
        rows["hardware"] += f", {machine['cores']} cores"
        rows["versions"] = f"vllm {machine['vllm']}, torch {machine['torch']}"
        words = " ".join(
            f"--{key} {_word(value)}" for key, value in options.items() if value not in (None, False)
        )
        rows["command"] = f"benchmarks/vllm_decode.py, options: {words}"
    stand_in = (
        f"{options['layers']} layers of Qwen3-30B-A3B's shape with random weights, "
        f"{options['dtype']}, in vLLM"
    )
    rows["model"] = stand_in
    return Source(
        name=name,
        kind="decoding in vLLM",
        sha256=sha256,
        record=raw,
        made=rows,
        stand_in=stand_in,
        findings=tuple(_findings(raw, name)),
    )


def _word(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _findings(raw: Mapping[str, Any], name: str) -> Iterator[Finding]:
    for result in raw["results"]:
        size = re.fullmatch(r"batch (\d+)", result["load"])
        before = result["variants"].get("none", {}).get("experts_before")
        for policy, line in result["variants"].items():
            yield Finding(
                source=name,
                policy=policy,
                load=result["load"],
                batch=int(size[1]) if size else None,
                stand_in=True,
                experts=line["experts_after"] if line["experts_after"] is not None else before,
                before=line["experts_before"] if line["experts_before"] is not None else before,
                of=EXPERTS,
                speed=Value(line["ratio"], line["ratio_low"], line["ratio_high"]),
            )


def sections(source: Source, letters: Mapping[str, str]) -> list[Section]:
    """Draw one table and one picture a load."""
    raw, anchor = source.record, f"vllm-{source.sha256[:6]}"
    blocks: list[Block] = [
        Text(
            f"Measured on {source.stand_in}, {raw['options']['rounds']} rounds in turns in one "
            "run. Random weights "
            "say nothing about quality."
        )
    ]
    charts = []
    for place, result in enumerate(raw["results"]):
        variants = result["variants"]
        values = {name: Value(v["ratio"], v["ratio_low"], v["ratio_high"]) for name, v in variants.items()}
        rows = [
            [
                name,
                letters.get(name, ""),
                number(line["experts_after"] or variants.get("none", {}).get("experts_before")),
                number(line["tokens_per_second"]),
                speedup(values[name]),
            ]
            for name, line in variants.items()
        ]
        columns = ["policy", "in pictures", f"experts read, of {EXPERTS}", "tokens/s", "speed-up (range)"]
        blocks.append(Table(result["load"], columns, rows, code=True))
        shown = [(n, letters.get(n, n), value) for n, value in values.items() if n != "unmodified"]
        title = f"Speed in vLLM, {result['load']}, {raw['options']['dtype']}"
        charts.append(dots(shown, f"{anchor}-{place}", title=title, across="speed over unmodified"))
    return [Section(anchor, f"Decoding in vLLM, {raw['options']['dtype']}", [*blocks, Charts(charts)])]
