"""``sere eval``: lm-evaluation-harness on the unmodified and the re-routed model, side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import typer
from rich.console import Console
from rich.text import Text

from sere.artifact import Artifact
from sere.cli.loading import DEMO, load, load_skeleton
from sere.cli.options import DeviceOption, DtypeOption, JsonOption, ModelArgument, ThreadsOption, TrustOption
from sere.cli.output import console, plain
from sere.errors import DataError

if TYPE_CHECKING:
    from sere.evaluation.harness import EvalRecord

RECORD = "eval.json"


def command(
    model: ModelArgument,
    artifact: Annotated[
        str | None,
        typer.Argument(metavar="[ARTIFACT]", help="Artifact of the model; not needed for none and top_k."),
    ] = None,
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            "-t",
            help="'bundled', 'paper', or the harness's tasks and groups by name, commas between.",
        ),
    ] = "bundled",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", help="NAME:key=value,...; repeatable. Default: sere:top_s=2 and sere:top_s=1."
        ),
    ] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option("--batch-size", "-b", help="Live sequences; repeatable. Default: 16.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="First examples of each task; all of them if left out.")
    ] = None,
    fewshot: Annotated[
        int | None, typer.Option(help="Examples shown in a prompt; the task's own number if left out.")
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--no-chat",
            help="Put prompts into the chat template; default: for the paper's tasks only.",
        ),
    ] = None,
    gen: Annotated[
        str,
        typer.Option(help="Generation settings over the tasks' own: temperature=0.7,max_gen_toks=512."),
    ] = "",
    scoring: Annotated[
        Literal["decode", "prompt"],
        typer.Option(
            help="Given answers are fed token by token as decoding steps; or read in one forward, where only "
            "policies with phase=all act."
        ),
    ] = "decode",
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Run the policy that changes nothing, too.")
    ] = True,
    run_code: Annotated[
        bool, typer.Option("--run-code", help="Allow tasks that run code which the model wrote.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of this evaluation; started again, it goes on there.")
    ] = Path("runs/eval"),
    read: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="POLICY=FOLDER, repeatable, one of them unmodified=FOLDER: run nothing, compare results "
            "that the harness wrote through another engine with --log_samples.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Similarity to use; the artifact's default if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of few-shot examples, sampling and intervals.")] = 0,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    trust_remote_code: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run lm-evaluation-harness on MODEL unmodified, under 'none', and under each policy.

    Same prompts, same seeds, same number of live sequences: a sequence that ends
    makes room for the next one, as in a server. Shown are each task's score, how
    much of the unmodified model's is retained, and whether the difference could
    be chance: McNemar's exact test, and a bootstrap over examples.

      sere eval demo ARTIFACT --tasks bundled --limit 20
      sere eval MODEL ARTIFACT --tasks paper --run-code
      sere eval MODEL ARTIFACT -t gsm8k,boolq -p sere:top_s=2,threshold=0.5

    Writes eval.json (the record, for `sere report`) and, under harness/, the
    harness's own files. A task under a policy is kept as soon as it is measured:
    after an interrupt the same command goes on with the next one.
    """
    from sere.evaluation.compare import plan
    from sere.evaluation.files import check_writable
    from sere.evaluation.harness import EvalConfig, run_eval
    from sere.evaluation.harness.installed import require_harness
    from sere.evaluation.harness.run import check_policies

    if read:
        record = _read(model, artifact, read, batch_size or [16], metric, seed, trust_remote_code)
        check_writable(out)
        record.save(out / RECORD)
        _show(record, out, as_json)
        return
    config = EvalConfig(
        tasks=tuple(name.strip() for name in tasks.split(",") if name.strip()),
        batch_sizes=tuple(batch_size or (16,)),
        limit=limit,
        fewshot=fewshot,
        chat=chat,
        generation=_settings(gen),
        scoring=scoring,
        control=control,
        run_code=run_code,
        seed=seed,
    )
    require_harness()
    policies = policy or ["sere:top_s=2", "sere:top_s=1"]
    statistics = None if artifact is None else Artifact.from_pretrained(artifact)
    # Whatever can be refused without the model is, before it is loaded.
    check_policies(plan(statistics, policies, metric), config)
    check_writable(out)
    if threads:
        torch.set_num_threads(threads)
    loaded, tokenizer = load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    with Console(stderr=True).status("starting") as status:
        record = run_eval(
            loaded,
            tokenizer,
            statistics,
            policies,
            config,
            out,
            metric=metric,
            progress=lambda text: status.update(Text(text)),
        )
    _show(record, out, as_json)


def _read(
    model: str,
    artifact: str | None,
    read: Sequence[str],
    sizes: Sequence[int],
    metric: str | None,
    seed: int,
    trust_remote_code: bool,
) -> EvalRecord:
    """Put results side by side that were made elsewhere."""
    from sere.engines.transformers import describe
    from sere.evaluation.harness.reading import read_results

    folders: dict[str, str] = {}
    for item in read:
        policy, sign, folder = item.rpartition("=")
        if not sign or not policy or not folder or policy in folders:
            raise DataError(f"--from {item!r} is no POLICY=FOLDER, or the policy is given twice.")
        folders[policy] = folder
    if len(sizes) > 1:
        raise DataError("results that are read are of one batch size. Give --batch-size once.")
    skeleton = load_skeleton(model, trust_remote_code=trust_remote_code)
    if model == DEMO:
        from sere.demo.model import NAME

        skeleton.config._name_or_path = NAME
    record = describe(skeleton)
    statistics = None if artifact is None else Artifact.from_pretrained(artifact)
    if statistics is not None:
        statistics.check_model(record)
    return read_results(folders, record, statistics, batch_size=sizes[0], metric=metric, seed=seed)


def _show(record: EvalRecord, out: Path, as_json: bool) -> None:
    from sere.cli.eval_tables import eval_tables

    if as_json:
        typer.echo(record.model_dump_json(indent=2))
        return
    for table in eval_tables(record):
        console().print(table)
    own = "" if record.read else f"   The harness's own files: {out / 'harness'}"
    plain(console(), f"Record: {out / RECORD}{own}")


def _settings(text: str) -> dict[str, Any]:
    """Read ``key=value,key=value``; values are JSON, or texts as they are."""
    found: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise DataError(f"--gen {item!r} is no setting. Write temperature=0.7, say.")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found
