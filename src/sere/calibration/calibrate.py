"""Calibrate a loaded model: all experts on all tokens, in the model's own forward passes."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sere.artifact import Artifact, CalibrationRecord, LayerRecord
from sere.calibration.config import CalibrationConfig
from sere.calibration.packing import pack
from sere.calibration.progress import Meter, Progress
from sere.calibration.refusals import refuse_quantised, refuse_rerouted
from sere.calibration.texts import load_texts
from sere.calibration.walk import Walk
from sere.errors import DataError
from sere.provenance import Provenance
from sere.version import __version__


def calibrate(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str] | None = None,
    *,
    config: CalibrationConfig | None = None,
    progress: Callable[[Progress], None] | None = None,
    model_id: str | None = None,
    data_name: str | None = None,
) -> Artifact:
    """Measure how alike the experts of every layer are.

    The model runs as loaded, on its own devices, in evaluation mode and without gradients; it is left
    as it was. The same model, texts and configuration give the same artifact, byte for byte.

    Args:
        model: A Transformers causal language model with routed experts.
        tokenizer: Its tokenizer.
        texts: Documents, see :func:`load_texts`; None takes the bundled sample.
        config: Settings; None takes the paper's, 400 sequences of 128 tokens.
        progress: Called after each layer of each batch.
        model_id: Name to record for the model; None takes the one it was loaded by.
        data_name: Name to record for the texts.

    Raises:
        EngineError: If the model has no routed experts or is of a family that is not supported.
        CalibrationError: If it is quantised or re-routed, or a layer gives NaN or is no weighted sum of its
            experts.
        DataError: If the texts are empty or too short, or the tokenizer is another model's.

    Source: arXiv 2602.07616, Eq. 1.

    """
    from sere.engines.transformers import find_layers
    from sere.engines.transformers.describe import configured
    from sere.engines.transformers.layers import unwrap

    config = config or CalibrationConfig()
    root = unwrap(model)
    refuse_quantised(configured(root), model_id)
    found = find_layers(root)
    refuse_quantised(configured(root), model_id, [layer.module for layer in found])
    refuse_rerouted([layer.module for layer in found])
    ids = tokens(texts, tokenizer, config)
    embedding = getattr(configured(root), "get_input_embeddings", lambda: None)()
    check_vocabulary(ids, embedding)
    meter = Meter(progress, config.batches, len(found), ids.numel())
    batch = 0
    walk = Walk(found, config, lambda name, count: meter.tick(batch, name, count))
    with torch.no_grad(), _evaluating(root), walk.hooked():
        body = getattr(root, "base_model", root)
        device = next((root if embedding is None else embedding).parameters()).device
        for batch, rows in enumerate(torch.split(ids, config.batch_sequences)):  # noqa: B007 - read by the meter
            walk.run(partial(body, input_ids=rows.to(device), use_cache=False))
    return assemble(root, found, walk, config, ids, model_id, data_name or _named(texts))


def assemble(
    root: nn.Module,
    found: Sequence[Any],
    walk: Walk,
    config: CalibrationConfig,
    ids: Tensor,
    model_id: str | None,
    data_name: str,
    device: str | None = None,
) -> Artifact:
    """Put the statistics of all layers and how they came to be into an artifact.

    ``device`` is where the layers ran; None takes it from the model.
    """
    from sere.engines.transformers import describe

    layers = tuple(
        LayerRecord(name=each.name, index=each.index, num_experts=each.num_experts, top_k=each.top_k)
        for each in found
    )
    record = describe(root)
    return Artifact.build(
        record if model_id is None else record.model_copy(update={"id": model_id}),
        layers,
        {name: means.statistics() for name, means in walk.means.items()},
        config.served,
        CalibrationRecord(
            data=data_name,
            data_sha256=hashlib.sha256(ids.numpy().tobytes()).hexdigest(),
            sequences=config.sequences,
            sequence_length=config.sequence_length,
            tokens=ids.numel(),
            batch_sequences=config.batch_sequences,
            batches=config.batches,
            seed=config.seed,
            dtype=str(next(found[0].module.parameters()).dtype).removeprefix("torch."),
            sere_version=__version__,
            provenance=Provenance.now(
                root,
                device=device,
                fingerprint=record.fingerprint,
                seeds={"order of the sequences": config.seed},
            ),
        ),
    )


def _named(texts: Sequence[str] | None) -> str:
    return "the bundled sample" if texts is None else "a list of texts"


def tokens(texts: Sequence[str] | None, tokenizer: Any, config: CalibrationConfig) -> Tensor:
    """Tokenise and cut the texts, shape [sequences, length], int64; see :func:`pack`."""
    if isinstance(texts, str):
        raise DataError("texts is one string. Pass a list of documents, or load a file with load_texts.")
    documents = load_texts(texts)
    return pack(
        documents,
        tokenizer,
        sequences=config.sequences,
        length=config.sequence_length,
        seed=config.seed,
    )


def check_vocabulary(ids: Tensor, embedding: nn.Module | None) -> None:
    """Raise :class:`DataError` if a token is none of the model's."""
    if isinstance(embedding, nn.Embedding) and int(ids.max()) >= embedding.num_embeddings:
        raise DataError(
            f"the tokenizer gives token {int(ids.max())}; the model has only {embedding.num_embeddings}. "
            "Load the tokenizer that belongs to this model."
        )


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
