"""A served benchmark from the result files of other tools: read, not rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sere.artifact import Artifact
from sere.bench.results import Load, read_result
from sere.bench.served.record import NONE, UNMODIFIED, Cell, ServedRecord
from sere.bench.served.summarise import summarise
from sere.errors import RecordError
from sere.provenance import Provenance

Named = tuple[str, Path]
"""A variant and a file with its loads."""


def read_named(text: str) -> Named:
    """Read ``VARIANT=FILE``, such as ``sere:top_s=1=fast.json``: the last sign parts them.

    The path of a file alone stands for the unmodified server.
    """
    variant, sign, file = text.rpartition("=")
    if not sign or Path(text).is_file():
        return UNMODIFIED, Path(text)
    return variant, Path(file)


def read_served(files: Sequence[Named], artifact: Artifact | None = None) -> ServedRecord:
    """Put result files of ``vllm bench serve``, GuideLLM or AIPerf together.

    Files of the same variant at the same rate are repetitions, in the order given; the n-th one of a policy
    is set against the n-th one of the unmodified server. Loads without a request rate, which keep a number of
    requests open, are left out: the record's ``config`` names them.

    Args:
        files: Variants and files.
        artifact: What was served, to tell the model; None if it is not at hand.

    Raises:
        RecordError: If a file is missing, cut short, of no known tool or given twice, or if no load has a
            request rate.

    """
    run = Provenance.now(
        device="unknown",
        fingerprint=None if artifact is None else artifact.model.fingerprint,
        artifact=None if artifact is None else artifact.hash,
    )
    cells: list[Cell] = []
    left_out: list[str] = []
    seen: dict[str, Path] = {}
    for variant, file in files:
        loads, digest = read_result(file)
        if digest in seen:
            raise RecordError(f"{file} is the same as {seen[digest]}. Give each result once.")
        seen[digest] = file
        for load in loads:
            if load.rate is None:
                left_out.append(f"{file.name}: {load.completed} requests of {variant}")
            else:
                cells.append(_cell(variant, load.rate, load, file, digest, run.created, cells))
    if not cells:
        raise RecordError(
            f"no load of {', '.join(str(file) for _, file in files)} has a request rate: they kept a number "
            "of requests open. Run the load generator at fixed rates."
        )
    variants = _ordered([variant for variant, _ in files])
    rates = sorted({cell.rate for cell in cells})
    return ServedRecord(
        provenance=run,
        runs=[],
        model=None if artifact is None else artifact.model,
        artifact=None if artifact is None else artifact.hash,
        config={"left_out": left_out} if left_out else {},
        environment={},
        cells=cells,
        summaries=summarise(cells, variants, rates),
        seconds=sum(cell.load.seconds for cell in cells),
    )


def _cell(
    variant: str, rate: float, load: Load, file: Path, digest: str, run: str, before: Sequence[Cell]
) -> Cell:
    repetition = sum((cell.variant, cell.rate) == (variant, rate) for cell in before)
    return Cell(
        variant=variant,
        rate=rate,
        repetition=repetition,
        run=run,
        load=load,
        result=file.name,
        sha256=digest,
    )


def _ordered(variants: Sequence[str]) -> list[str]:
    """Put each variant once, the two controls first."""
    given = dict.fromkeys(variants)
    controls = [control for control in (UNMODIFIED, NONE) if control in given]
    return [*controls, *(variant for variant in given if variant not in controls)]
