"""What becomes of a slot whose expert is not kept, and with which weight: every pairing compared.

    python benchmarks/fill_and_weigh.py MODEL ARTIFACT [--batch-size 16 --data FILE --out FILE --cache FILE]

The selection is SERE's in all of them, the union of each row's top S, with S swept; only fill and weights
differ. So two questions have an answer: is the most similar expert ever a better substitute than the
row's own next best (backfill)? And how much of the loss is a matter of weights alone, with the experts as
they are?
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sere.artifact import Artifact
from sere.calibration import load_texts
from sere.cli.loading import load
from sere.evaluation.sweep import Evaluator, Series, SweepConfig, SweepRecord, sweep
from sere.evaluation.sweep.tables import equal_experts
from sere.routing import Policy
from sere.routing.backfill import Backfill
from sere.routing.fill import Drop, Fill, MostSimilar
from sere.routing.fold import MinLoss
from sere.routing.refit import Project, Refit
from sere.routing.select import UnionTopS
from sere.routing.substitutes import LeastSimilar
from sere.routing.weigh import Keep, Renormalise, Weigh

FILLS: dict[str, Fill] = {
    "dropped": Drop(),
    "least similar": LeastSimilar(),
    "most similar": MostSimilar(0.0),
    "least projection loss": MinLoss(),
    "backfill": Backfill(),
}
WEIGHTS: dict[str, Weigh] = {
    "kept": Keep(),
    "renormalised": Renormalise(),
    "projected": Project(),
    "refitted": Refit(),
}
LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7)


def pairings(top_k: int) -> tuple[list[Series], dict[str, Policy]]:
    series, built = [], {}
    for fill, fills in FILLS.items():
        for weight, weighs in WEIGHTS.items():
            if fill == "dropped" and weight == "projected":
                continue  # nothing is moved
            name = f"{fill}, {weight}"
            forms = [f"{name}, S={top_s}" for top_s in range(1, top_k)]
            for top_s, form in enumerate(forms, start=1):
                built[form] = Policy(form, UnionTopS(top_s), fills, weighs)
            series.append(Series(name, tuple(forms)))
    return series, built


def table(record: SweepRecord, size: int) -> str:
    """Put the levels side by side."""
    columns = [{row[0]: row[1] for row in equal_experts(record, level).rows} for level in LEVELS]
    lines = [f"| fill, weights | {' | '.join(f'{level:.0%}' for level in LEVELS)} |", "| --- " * 6 + "|"]
    for name in record.series:
        cells = [column.get(name, "-").replace("\n", " ") for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return f"KL at a share of the unmodified model's experts, batch {size}\n\n" + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("artifact")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args()
    model, tokenizer = load(asked.model)
    texts = None if asked.data is None else load_texts(asked.data)
    artifact = Artifact.from_pretrained(asked.artifact)
    evaluator = Evaluator(model, tokenizer, artifact, texts, SweepConfig(), cache=asked.cache)
    series, built = pairings(max(slots for _, slots in evaluator.layers))
    record = sweep(evaluator, series, [asked.batch_size], built=built)
    print(table(record, asked.batch_size))
    if asked.out is not None:
        record.save(asked.out)


if __name__ == "__main__":
    main()
