"""Put the sections together and write the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sere.errors import MissingError, RecordError
from sere.evaluation.files import write_text
from sere.report.blocks import Block, Section, Table, Text
from sere.report.charts.style import require_matplotlib
from sere.report.copying import section as copying
from sere.report.form import called
from sere.report.headline import headline
from sere.report.overview import lettered, overview
from sere.report.source import Source
from sere.report.sources import doubts, read_all
from sere.report.verdict import verdict
from sere.version import __version__

KEEP = 0.95
"""Share of the unmodified model's quality that the policy of the opening sentence should keep."""

WORDS = (
    (
        "Distinct experts",
        "experts of a layer that at least one token of a decoding step needs: what is read from memory.",
    ),
    ("KL", "how far the predictions moved from the unmodified model's, in nats per token; 0 is the same."),
    ("Same first choice", "share of tokens for which the most likely next token stayed the same."),
    ("Unmodified", "the model without any hook; every loss and speed-up is against it, in the same run."),
    ("none", "a control that runs the whole path and changes nothing."),
    (
        "Policy",
        "name and settings, such as sere:top_s=2: which experts stay, and what becomes of the others.",
    ),
)


def render(
    paths: Sequence[str | Path], *, keep: float = KEEP, mixed: bool = False, title: str | None = None
) -> str:
    """Return the page of some records.

    Args:
        paths: Files with records, and at most a few folders with artifacts.
        keep: Share of the unmodified model's quality to ask of the policy in the opening sentence, in (0, 1].
        mixed: Allow records of different models; the page says so.
        title: Title; None for one with the model's name.

    Raises:
        MissingError: If Matplotlib or Jinja is not installed.
        RecordError: If there is no record, one is unusable, or they are of different models.
        ArtifactError: If an artifact is not whole.

    """
    if not paths:
        raise RecordError("a report needs a record. Make one with sere compare MODEL DIR --out record.json.")
    if not 0 < keep <= 1:
        raise RecordError(
            f"the share of quality to keep must be above 0 and at most 1, got {keep}. Try 0.95."
        )
    require_matplotlib()
    read = read_all([Path(path) for path in paths], mixed)
    sources = [source for _, source in read]
    found = [finding for source in sources for finding in source.findings]
    letters = lettered(found)
    opening = headline(sources, keep)
    points = {name: point for s in sources for name, point in s.facts.get("operating_points", {}).items()}
    sections = [overview(found, letters)]
    for kind, source in read:
        sections += kind.sections(source, letters)
    if found:
        sections.append(verdict(found))
    sections += [copying(opening.policy, points), provenance(sources)]
    names = ", ".join(dict.fromkeys(called(s.model.id) for s in sources if s.model is not None))
    page: str = _template().render(
        title=title or f"Re-routing {names or 'a model'}",
        opening=opening,
        doubts=doubts(sources),
        sections=[section for section in sections if section.blocks],
        words=WORDS,
        version=__version__,
    )
    return page


def write_report(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    keep: float = KEEP,
    mixed: bool = False,
    title: str | None = None,
) -> None:
    """Write the page of :func:`render` to ``out``, whole or not at all.

    Raises:
        DataError: If ``out`` cannot be written; besides what :func:`render` raises.

    """
    write_text(out, render(paths, keep=keep, mixed=mixed, title=title))


def provenance(sources: Sequence[Source]) -> Section:
    """Say how each record was made, and which file it was."""
    blocks: list[Block] = [
        Text("Every figure of this page is read from these files; nothing is typed in by hand.")
    ]
    for source in sources:
        rows = [["SHA-256", source.sha256], *([name, text] for name, text in source.made.items())]
        blocks.append(Table(f"{source.name}: {source.kind}", ["what", "value"], rows, prose=True))
    return Section("provenance", "How it was measured", blocks)


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingError("a report needs Jinja. Run: pip install 'sere-moe[report]'.") from error
    loader = jinja2.PackageLoader("sere.report", "templates")
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).get_template("page.html")
