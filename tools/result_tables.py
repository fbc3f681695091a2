"""Put the tables of measured records into the pages that show them.

    python tools/result_tables.py            # rewrite README.md and docs/results.md
    python tools/result_tables.py --check    # exit code 1 if a page is not what the records say

A page marks the place of a table with ``<!-- NAME -->`` and ``<!-- /NAME -->``; the text in between is
made here from ``docs/results/demo.json``, which is the record of ``make demo``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from sere.demo.run import DemoRecord
from sere.demo.tables import in_words

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/results.md")
RECORD = "docs/results/demo.json"


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
        f"{real.provenance.processor}, {record.seconds / 60:.0f} minutes in all: "
        f"{first.batch_size} live sequences, "
        f"{first.fidelity.tokens:,} tokens of held-out text and {tasks} prompts never trained on; "
        f"speed is the median of {real.results[0].speed.rounds} rounds in turns. "
        f"Record: [demo.json](RESULTS/demo.json)."
    )


TABLES: dict[str, Callable[[DemoRecord], str]] = {
    "demo-loss": loss_table,
    "demo-speed": speed_table,
    "demo-setting": setting,
}


def filled(page: str, text: str, record: DemoRecord) -> str:
    """Return ``text`` with every marked place filled."""
    results = "docs/results" if page == "README.md" else "results"
    for name, make in TABLES.items():
        made = make(record).replace("RESULTS", results)
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
    record = DemoRecord.model_validate_json((ROOT / RECORD).read_text(encoding="utf-8"))
    stale = []
    for page in PAGES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        new = filled(page, text, record)
        if new != text:
            stale.append(page)
            if not check:
                path.write_text(new, encoding="utf-8")
    print("changed" if stale else "unchanged", *stale)
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
