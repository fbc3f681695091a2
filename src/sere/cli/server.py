"""``sere doctor --url``: what a running server has done."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console

from sere.engines.vllm.scrape import ServerReport, read_server


def report_server(url: str, as_json: bool) -> None:
    """Print what the server at ``url`` has re-routed since it started.

    Raises:
        EngineError: If there is no server at ``url``, or it does not run the plugin.

    """
    report = read_server(url)
    if as_json:
        typer.echo(json.dumps({"url": url, "verdict": verdict(report), **_plain(report)}, indent=2))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{url}[/bold]: {verdict(report)}")
    for worker, policy in report.policies.items():
        console.print(f"  worker {worker}: policy {policy}", markup=False)
    if report.steps:
        console.print(f"  layers                             {report.layers}")
        console.print(f"  layer steps with decode rows       {report.steps:,}")
        console.print(f"  decode rows per layer step         {report.decode_rows:.1f}")
        before, after = report.distinct_before, report.distinct_after
        console.print(f"  distinct experts per layer step    {before:.1f} -> {after:.1f}")
        console.print(f"  slots re-routed                    {report.rerouted:.1%}")


def verdict(report: ServerReport) -> str:
    """One sentence: whether re-routing is active, and if not, why."""
    named = sorted(set(report.policies.values()))
    if named == ["off"]:
        return "the plugin is loaded and switched off"
    if not report.steps:
        return "the plugin is loaded; no decode step yet, send it some requests"
    if not report.rerouted:
        return "the plugin is loaded and counts, but no slot was re-routed"
    return "re-routing is active"


def _plain(report: ServerReport) -> dict[str, Any]:
    """Fields for JSON, which knows no NaN."""
    values = asdict(report)
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in values.items()
    }
