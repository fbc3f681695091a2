"""A batch of sequences in the middle of being decoded: the loop's state, without a policy in it.

Transformers' ``generate`` hides the steps; evaluation has to stand between them. Positions follow
from the attention mask, so left padding changes no result.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class LiveBatch:
    """Sequences that share a key-value cache, left-padded to one length.

    Attributes:
        mask: 1 for real tokens, 0 for left padding, shape [B, L], int64.

    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._keyword = (
            "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"
        )
        self._cache: Any = None
        self.mask = torch.zeros(0, 0, dtype=torch.long)

    def __len__(self) -> int:
        return self.mask.shape[0]

    def prefill(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Start the batch with its prompts.

        Args:
            ids: Token ids, shape [B, P], left-padded, int64.
            mask: 1 for real tokens, shape [B, P], int64.

        Returns:
            Logits after the last prompt token, shape [B, V].

        """
        self._cache, self.mask = None, mask
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        return self._forward(ids, positions)

    def step(self, tokens: Tensor) -> Tensor:
        """Feed one token a sequence, shape [B], and return the logits after it, shape [B, V]."""
        positions = self.mask.sum(1, keepdim=True)
        self.mask = F.pad(self.mask, (0, 1), value=1)
        return self._forward(tokens.unsqueeze(1), positions)

    def keep(self, rows: Tensor) -> None:
        """Drop all sequences but ``rows``, indices of shape [B'], int64."""
        if len(rows) < len(self):
            size = len(self)
            self.mask = self.mask[rows]
            if len(rows):
                select_rows(self._cache, size, rows)
            else:
                self._cache = None

    def can_join(self) -> bool:
        """Whether sequences can be added: every layer must hold all keys and values of the past."""
        from transformers.cache_utils import DynamicCache, DynamicLayer

        if len(self) == 0:
            return True
        return type(self._cache) is DynamicCache and all(
            type(layer) is DynamicLayer for layer in self._cache.layers
        )

    def join(self, other: LiveBatch) -> None:
        """Append another batch's sequences; columns that are padding everywhere go."""
        from transformers.cache_utils import DynamicCache

        if len(self) == 0:
            self._cache, self.mask = other._cache, other.mask
            return
        width = int(max(self.mask.sum(1).max(), other.mask.sum(1).max()))
        merged = DynamicCache()
        for index, (mine, theirs) in enumerate(zip(self._cache.layers, other._cache.layers, strict=True)):
            keys = torch.cat([_fit(mine.keys, width, 2), _fit(theirs.keys, width, 2)])
            values = torch.cat([_fit(mine.values, width, 2), _fit(theirs.values, width, 2)])
            merged.update(keys, values, index)
        self._cache = merged
        self.mask = torch.cat([_fit(self.mask, width, 1), _fit(other.mask, width, 1)])

    def _forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        past = {} if self._cache is None else {self._keyword: self._cache}
        output = self._model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **past,
        )
        self._cache = output[self._keyword]
        logits: Tensor = output.logits[:, -1]
        return logits


def select_rows(holder: Any, size: int, rows: Tensor) -> Any:
    """Keep ``rows`` of every tensor in a cache whose first dimension is the batch of ``size``.

    Caches have a method for this, but those with recurrent or convolution states lack it or forget
    the states. So everything that a cache holds is looked through; ``holder`` is changed in place.

    Args:
        holder: The cache, or a part of it.
        size: B, rows before.
        rows: Indices of those that stay, shape [B'], int64.

    Returns:
        ``holder``, or its selection where it is a tensor or a tuple.

    """
    if isinstance(holder, Tensor):
        return holder.index_select(0, rows.to(holder.device)) if holder.shape[:1] == (size,) else holder
    if isinstance(holder, tuple):
        return tuple(select_rows(value, size, rows) for value in holder)
    if isinstance(holder, list):
        holder[:] = [select_rows(value, size, rows) for value in holder]
    elif isinstance(holder, dict):
        holder.update({key: select_rows(value, size, rows) for key, value in holder.items()})
    elif "cache" in f"{type(holder).__module__}.{type(holder).__qualname__}".lower():
        vars(holder).update({key: select_rows(value, size, rows) for key, value in vars(holder).items()})
    return holder


def _fit(tensor: Tensor, width: int, dim: int) -> Tensor:
    """Make ``dim`` ``width`` long at its left end: cut what is there or put zeros."""
    length = tensor.shape[dim]
    if length >= width:
        return tensor.narrow(dim, length - width, width)
    padding = [0, 0] * (tensor.ndim - 1 - dim) + [width - length, 0]
    return F.pad(tensor, padding)
