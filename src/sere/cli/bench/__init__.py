"""``sere bench``: speed side by side, one short file a command."""

from __future__ import annotations

import typer

from sere.cli.bench import decode, read, serve

HELP = """
Measure speed side by side: unmodified, the control [cyan]none[/cyan], and your policies, in turns.

  [cyan]sere bench decode MODEL ARTIFACT[/cyan]
     decoding at fixed batch sizes, in Transformers or vLLM
  [cyan]sere bench serve MODEL --artifact ARTIFACT[/cyan]
     a vLLM server under load at several request rates
  [cyan]sere bench read VARIANT=FILE...[/cyan]
     results that GuideLLM, AIPerf or vllm bench serve gave you already

MODEL may be the word [cyan]stand-in[/cyan]: layers of Qwen3-30B-A3B's shape with random weights,
made on the fly, to see what this machine gains before you have a model.
Each writes a record for [cyan]sere report[/cyan].
"""

app = typer.Typer(help=HELP, rich_markup_mode="rich", no_args_is_help=True, add_completion=False)


app.command("decode")(decode.command)
app.command("serve")(serve.command)
app.command("read")(read.command)
