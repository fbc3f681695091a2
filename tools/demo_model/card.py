"""Write the card of the bundled model from its training record and its measured quality.

    python tools/demo_model/card.py OUT/training.json src/sere/demo/model

measures exact match on the held-out tasks and the loss on the held-out text, and writes
``README.md`` into the model's folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from sere.demo.model import load
from sere.evaluation.quality import model_report

POINTS = 12


def curve(record: dict[str, Any]) -> str:
    """Rows of a table with about :data:`POINTS` points of the loss curve."""
    points = record["curve"]
    stride = max(1, len(points) // POINTS)
    shown = points[::stride]
    if shown[-1] is not points[-1]:
        shown.append(points[-1])
    return "\n".join(f"| {point['step']:,} | {point['tokens']:,} | {point['loss']:.3f} |" for point in shown)


def render(training: dict[str, Any], report: dict[str, Any], parameters: int) -> str:
    tasks = "\n".join(f"| {name} | {share:.0%} |" for name, share in report["tasks"].items())
    return f"""---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
tags:
- mixture-of-experts
- sere
---

# sere demo model

A mixture-of-experts language model of {parameters:,} parameters that was really trained, so that
re-routing has something to lose. It shows a method and is good for nothing else.

* **Architecture**: Qwen3-MoE; 4 layers, hidden size 128, 64 experts of width 32 a layer, 8 a token, 4
  attention heads of 32 (2 for keys and values), tied embeddings, byte-level BPE of 1,024
  tokens with single digits.
* **Data**: prose of the Python 3.11 documentation (copyright Python Software Foundation, PSF License 2) and
  the King James Bible (public domain), taken from Debian's `python3.11-doc` and `bible-kjv-text`; ten
  generated tasks (`sere/demo/tasks.py`). A quarter of the sequences is text; of the tasks only the answers were learnt.
* **Held out**: 2% of the text by hash, and {report["examples_per_task"]} prompts of each task, never
  trained on. Calibration uses another 8%.
* **Recipe**: `tools/demo_model/train.py`, seed {training["seed"]}, AdamW, peak rate 4e-3, warm-up,
  constant, then a fall to zero over the last 30%; one CPU thread, {training["minutes"]:.0f} minutes,
  {training["steps"]:,} steps, {training["tokens"]:,} tokens. The run ends by the clock, so another machine takes another number of steps.
* **Licence**: Apache-2.0 for the weights and code.

## Quality

`python tools/demo_model/card.py training.json src/sere/demo/model`

| held-out text | |
| --- | --- |
| loss, nats per token | {report["text_loss"]:.3f} |
| unigram baseline, nats per token | {report["unigram_loss"]:.3f} |
| bits per byte | {report["bits_per_byte"]:.3f} |

| task ({report["examples_per_task"]} held-out prompts each, greedy) | exact match |
| --- | --- |
{tasks}
| **all** | **{report["exact_match"]:.1%}** |

## Loss curve

Moving average of the training loss over text and answers, nats per token.

| step | tokens | loss |
| --- | --- | --- |
{curve(training)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("training", type=Path)
    parser.add_argument("model", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load(args.model)
    report = model_report(model, tokenizer)
    training = json.loads(args.training.read_text(encoding="utf-8"))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    (args.model / "README.md").write_text(render(training, report, parameters), encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
