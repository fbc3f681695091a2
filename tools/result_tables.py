"""Put the tables of measured records into the pages that show them.

    python tools/result_tables.py            # rewrite the pages
    python tools/result_tables.py --check    # exit code 1 if a page is not what the records say

A page marks the place of a table with ``<!-- NAME -->`` and ``<!-- /NAME -->``; the text in between is
made here: ``demo-*`` from ``docs/results/demo.json``, the record of ``make demo``, ``sweep-*`` from
``docs/results/sweep.json``, that of ``make comparison``, ``pairings`` from that of
``benchmarks/fill_and_weigh.py``, and ``vllm-16`` and ``vllm-loads-float32`` from those of
``benchmarks/vllm_decode.py``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import comparison_tables
from sere.demo.run import DemoRecord
from sere.demo.tables import in_words
from sere.evaluation.sweep import SweepRecord
from sere.evaluation.sweep import tables as sweep_tables

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/results.md", "docs/who_wins.md", "docs/vllm.md")
RECORD = "docs/results/demo.json"
SWEEP = "docs/results/sweep.json"
PAIRINGS = "docs/results/fill_and_weigh.json"
VLLM = {"float32": "docs/results/vllm_float32.json", "bfloat16": "docs/results/vllm_bfloat16.json"}
OTHERS = ("refit", "tolerance", "oea", "energy", "xshare", "lynx", "random", "des_vote", "moe_spec", "top_k")
"""Series beside SERE at half of the experts."""


def loss_table(record: DemoRecord) -> str:
    """Tell what is read and lost on the bundled model."""
    first = record.comparison.results[0]
    rows = [
        f"| policy | experts read per layer and step, of {first.experts.of} | KL | same first choice "
        "| perplexity | tasks solved |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for result in record.comparison.results:
        near, tasks = result.fidelity, "-" if result.tasks is None else f"{result.tasks.exact_match:.1%}"
        rows.append(
            f"| {in_words(result.policy)} | {result.experts.after:.1f} "
            f"({result.experts.after / first.experts.before:.0%}) | {near.kl:.3f} "
            f"| {near.top1_agreement:.1%} | {near.perplexity_change:+.1%} | {tasks} |"
        )
    return "\n".join(rows)


def speed_table(record: DemoRecord) -> str:
    """Tell what is gained at a real layer's size."""
    results = record.real_size.results
    before = results[0].experts.before
    rows = [
        "| policy | experts read, of 128 | tokens per second | speed-up (least to greatest) |",
        "| --- | --- | --- | --- |",
    ]
    for result in results:
        speed = result.speed
        rows.append(
            f"| {in_words(result.policy)} | {result.experts.after:.1f} ({result.experts.after / before:.0%}) "
            f"| {speed.tokens_per_second:.1f} | {speed.ratio:.2f} ({speed.ratio_low:.2f} to "
            f"{speed.ratio_high:.2f}) |"
        )
    return "\n".join(rows)


def setting(record: DemoRecord) -> str:
    """One sentence about how the two tables were measured."""
    first, real = record.comparison.results[0], record.real_size
    tasks = first.tasks.examples if first.tasks is not None else 0
    return (
        f"Measured by `make demo` on {real.provenance.threads} CPU thread(s) with "
        f"{real.provenance.processor}, {record.seconds / 60:.0f} minutes once installed: "
        f"{first.batch_size} live sequences, "
        f"{first.fidelity.tokens:,} tokens of held-out text and {tasks} prompts never trained on; "
        f"speed and speed-up are medians of {real.results[0].speed.rounds} rounds in turns, the speed-up of "
        "each round's own ratio, so it is not quite the quotient of the speeds. KL is in nats per token, "
        "and alike runs from 0 to 1 (1: equal outputs). "
        f"Record: [demo.json](RESULTS/demo.json)."
    )


def sweep_setting(record: SweepRecord) -> str:
    """One sentence about how the sweep was measured."""
    config, first = record.config, record.solutions[0]
    settings = len({each.policy for each in record.settings}) - 1
    return (
        f"{len(record.series)} series of {settings} settings, {len(record.batch_sizes)} batch sizes, "
        f"{config['seeds']} seeds: {record.points:,} points, each of {config['sequences']} sequences "
        f"(or one batch, if that is more) of {config['sequence_length']} tokens, of which "
        f"{config['prompt_tokens']} are prompt. Exact match on {first.examples} prompts never trained on. "
        "Record: [sweep.json](RESULTS/sweep.json)."
    )


def vllm_decode(load: str) -> str:
    """Ratios of decoding speed in vLLM at one load, a column for each type of weights."""
    columns = {}
    for dtype, path in VLLM.items():
        results = json.loads((ROOT / path).read_text(encoding="utf-8"))["results"]
        columns[dtype] = next(each["variants"] for each in results if each["load"] == load)
    first = next(iter(columns.values()))
    before = first["none"]["experts_before"]
    rows = [
        f"| {load} | distinct experts | " + " | ".join(columns) + " |",
        "| --- " * (2 + len(columns)) + "|",
    ]
    for name, one in first.items():
        label = name if name == "unmodified" else f"`{name}`"
        cells = [
            f"{found[name]['tokens_per_second']:.0f} tok/s"
            if name == "unmodified"
            else "{ratio:.2f} ({ratio_low:.2f} to {ratio_high:.2f})".format(**found[name])
            for found in columns.values()
        ]
        rows.append(f"| {label} | {one['experts_after'] or before:.0f} | {' | '.join(cells)} |")
    return "\n".join(rows)


def vllm_loads(dtype: str) -> str:
    """Ratios of decoding speed in vLLM with one type of weights, a row for each load."""
    results = json.loads((ROOT / VLLM[dtype]).read_text(encoding="utf-8"))["results"]
    names = [name for name in results[0]["variants"] if name != "unmodified"]
    titles = " | ".join(f"`{name}`" for name in names)
    rows = [
        f"| {dtype} | unmodified, tok/s | distinct experts, S=1 | {titles} |",
        "| --- " * (3 + len(names)) + "|",
    ]
    for result in results:
        found = result["variants"]
        read = found["sere:top_s=1"]
        cells = " | ".join(
            "{ratio:.2f} ({ratio_low:.2f} to {ratio_high:.2f})".format(**found[name]) for name in names
        )
        rows.append(
            f"| {result['load']} | {found['unmodified']['tokens_per_second']:.0f} "
            f"| {read['experts_before']:.0f} -> {read['experts_after']:.0f} | {cells} |"
        )
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {
    "demo-loss": lambda: loss_table(demo_record()),
    "demo-speed": lambda: speed_table(demo_record()),
    "demo-setting": lambda: setting(demo_record()),
    "sweep-setting": lambda: sweep_setting(sweep_record(SWEEP)),
    "sweep-equal": lambda: sweep_tables.equal_experts(sweep_record(SWEEP)).markdown(),
    "sweep-winners": lambda: sweep_tables.winners(sweep_record(SWEEP)).markdown(),
    "sweep-front": lambda: sweep_tables.front(sweep_record(SWEEP), 16).markdown(),
    "sweep-company": lambda: sweep_tables.companies(sweep_record(SWEEP)).markdown(),
    "sweep-solutions": lambda: sweep_tables.solutions(sweep_record(SWEEP)).markdown(),
    "vllm-16": lambda: vllm_decode("batch 16"),
    "vllm-loads-float32": lambda: vllm_loads("float32"),
    "vllm-loads-bfloat16": lambda: vllm_loads("bfloat16"),
    "sweep-backfill": lambda: comparison_tables.against(sweep_record(SWEEP), "oea", "sere"),
    "sweep-half": lambda: comparison_tables.half(sweep_record(SWEEP), OTHERS, "sere"),
    "pairings": lambda: comparison_tables.pairings(sweep_record(PAIRINGS)),
}


@cache
def demo_record() -> DemoRecord:
    """Load the record of ``make demo``."""
    return DemoRecord.model_validate_json((ROOT / RECORD).read_text(encoding="utf-8"))


@cache
def sweep_record(path: str) -> SweepRecord:
    """Load a record of ``sere sweep``."""
    return SweepRecord.load(ROOT / path)


def filled(page: str, text: str) -> str:
    """Return ``text`` with every marked place filled."""
    results = "docs/results" if page == "README.md" else "results"
    for name, make in TABLES.items():
        if f"<!-- {name} -->" not in text:
            continue
        made = make().replace("RESULTS", results)
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda found, made=made: f"{found[1]}{made}\n{found[2]}",
            text,
            flags=re.DOTALL,
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for page in PAGES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        new = filled(page, text)
        if new != text:
            stale.append(page)
            if not check:
                path.write_text(new, encoding="utf-8")
    print("changed" if stale else "unchanged", *stale)
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
