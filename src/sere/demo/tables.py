"""The two tables of the demonstration, for a reader who knows nothing of the method."""

from __future__ import annotations

from rich.table import Table

from sere.bench.real_size import RealSizeRecord
from sere.evaluation import ComparisonRecord, PolicyResult


def in_words(policy: str) -> str:
    """Say what a policy of the demonstration does."""
    name, _, rest = policy.partition(":")
    values = dict(item.split("=") for item in rest.split(",") if item)
    if name == "unmodified":
        return "unmodified model"
    if name == "none":
        return "none: nothing changed (control)"
    if name == "top_k":
        return f"top-{values['k']}: each token keeps its {values['k']} heaviest experts, the rest is dropped"
    if name == "refit":
        return (
            f"refit {float(values['share']):.0%}: experts go until that share of the rows' energy is gone, "
            "each row takes its next best, weights fitted again (ours)"
        )
    if "threshold" in values:
        least = f"{float(values['threshold']):.2f}"
        return f"sere S={values['top_s']}, but replaced only where at least {least} alike"
    best = "heaviest expert" if values["top_s"] == "1" else f"{values['top_s']} heaviest experts"
    return (
        f"sere S={values['top_s']}: each token's {best} kept for the whole batch, "
        "others replaced by the most alike of them"
    )


def fidelity_table(record: ComparisonRecord, threshold: float) -> Table:
    """Draw what each policy reads and loses; fits 80 columns.

    Args:
        record: The comparison, of one batch size.
        threshold: Similarity of the lower quartile of pairs, explained below the table.

    """
    first = record.results[0]
    near, experts = first.fidelity, first.experts
    title = f"What is read, what is lost: {record.model.id}, {first.batch_size} sequences at a time"
    headings = (
        f"experts\nread, of {experts.of}",
        "KL",
        "same\nfirst\nchoice",
        "perplex-\nity",
        "tasks\nsolved",
    )
    table = _table(title, headings)
    for result in record.results:
        table.add_row(*_fidelity_cells(result, experts.before))
    solved = ""
    if first.tasks:
        low, high = first.tasks.interval
        solved = (
            f" Tasks solved: exact answers to {first.tasks.examples} prompts never trained on; of as many "
            f"others the unmodified model would solve {low:.0%} to {high:.0%}."
        )
    table.caption = (
        "Experts read: distinct experts per layer and decoding step, and their share of the unmodified "
        f"model's. KL (0 is identical, in nats), same first choice and perplexity: predictions of "
        f"{near.tokens:,} tokens of held-out text, against the unmodified model, whose perplexity is "
        f"{near.reference_perplexity:.1f}.{solved} {threshold:.2f}: three quarters of all pairs of experts "
        "are at least so alike."
    )
    return table


def _fidelity_cells(result: PolicyResult, unmodified: float) -> list[str]:
    near = result.fidelity
    return [
        in_words(result.policy),
        f"{result.experts.after:.1f} ({result.experts.after / unmodified:.0%})",
        f"{near.kl:.3f}",
        f"{near.top1_agreement:.1%}",
        f"{near.perplexity_change:+.1%}",
        f"{result.tasks.exact_match:.1%}" if result.tasks else "-",
    ]


def speed_table(record: RealSizeRecord) -> Table:
    """Draw decode speed at the real size; fits 80 columns."""
    config, threads = record.config, record.provenance.threads
    size = (
        "Qwen3-30B-A3B's size" if config["scale"] == 1 else f"1/{config['scale']} of the real width (rough)"
    )
    title = (
        f"What it gains: {config['layers']} block(s) of {size}, random weights, "
        f"{config['batch_size']} sequences at a time, {threads} CPU thread(s)"
    )
    table = _table(title, ("experts\nread, of 128", "tokens per\nsecond", "speed-up\n(least to greatest)"))
    unmodified = record.results[0].experts.before
    for result in record.results:
        speed = result.speed
        table.add_row(
            in_words(result.policy),
            f"{result.experts.after:.1f} ({result.experts.after / unmodified:.0%})",
            f"{speed.tokens_per_second:.1f}",
            f"{speed.ratio:.2f} ({speed.ratio_low:.2f} to {speed.ratio_high:.2f})",
        )
    table.caption = (
        "The whole decoding step in Transformers, attention included. The model itself has 48 such blocks, "
        "so its tokens per second are far fewer. Medians over rounds in which the policies take turns."
    )
    return table


def _table(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(title=title, show_lines=True, title_justify="left", caption_justify="left")
    table.add_column("policy")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
