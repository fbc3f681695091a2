"""Row kinds: tell decode, prefill and padding rows apart from what a model's forward is given.

The rules, in this order:

* **Packed batches** (``cu_seq_lens_q`` and ``cu_seq_lens_k``, as continuous batching passes them): a
  sequence with one query and more keys is decode; a longer one is prefill; rows past the last
  sequence are padding. The last chunk of a prompt cannot be told from decode if it is one token long.
* **One token a row with a cache that is not empty**: decode, also if it is a prompt's last chunk.
* **Several tokens** with such a cache, while ``generate`` is past its prompt (assisted decoding
  verifies a draft): decode. Anywhere else, and without a cache: prefill. The first draft, which runs
  together with the prompt, counts as part of it.
* **Padding**: zeros of a 2D attention mask in the columns of these tokens. A 4D mask marks a row as
  padding at prefill if the token may not see itself. Other masks: no padding.
* **Finished sequences**: inside ``generate``, sampling or greedy, with an end token set, a decode row
  that is fed an end or pad token is taken for one of a sequence that has ended: padding. (So is the
  step after a living sequence produced a pad token that is no end token, which trained models do not.)
  Elsewhere such tokens are ordinary ones, since a loop of one's own may well feed them.

All of it is tensor work on the device; Python only looks at shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sere.routing import DECODE, PADDING, PREFILL


@dataclass(eq=False)
class Generation:
    """What the surrounding ``generate`` call is known to do.

    Attributes:
        decoding: Whether it is past its prompt.
        ends: Token ids that a finished sequence is fed, shape [N], or None where unknown.

    """

    decoding: bool = False
    ends: Tensor | None = None


def row_kinds(given: Mapping[str, object], generation: Generation) -> Tensor | None:
    """Kinds of all rows of a step, shape [batch * tokens], int64, batch-major; None without tokens.

    Args:
        given: Arguments of the model's forward by name.
        generation: The surrounding call.

    """
    shape, device = token_shape(given)
    if shape is None:
        return None
    batch, tokens = shape
    packed_q, packed_k = given.get("cu_seq_lens_q"), _first(given.get("cu_seq_lens_k"))
    if isinstance(packed_q, Tensor) and isinstance(packed_k, Tensor):
        return _packed(packed_q, packed_k, batch * tokens)
    cache = given.get("cache") if given.get("cache") is not None else given.get("past_key_values")
    seen = _seen(cache, tokens)
    base = _base(seen, cache is not None and (tokens == 1 or generation.decoding))
    kinds = base.to(device) if isinstance(base, Tensor) else torch.full((), base, device=device)
    kinds = kinds.expand(batch, tokens)
    padding = _padding(_first(given.get("attention_mask")), seen, tokens)
    ids = given.get("input_ids")
    if generation.decoding and tokens == 1 and generation.ends is not None and isinstance(ids, Tensor):
        ended = torch.isin(ids, generation.ends.to(device)) & (kinds == DECODE)
        padding = ended if padding is None else padding | ended
    if padding is not None:
        kinds = torch.where(padding, PADDING, kinds)
    return kinds.reshape(-1)


def token_shape(given: Mapping[str, object]) -> tuple[tuple[int, int] | None, torch.device]:
    """Batch size and tokens a row of a step, None where the forward was given no tokens; the device."""
    for name in ("inputs_embeds", "input_ids"):
        value = given.get(name)
        if isinstance(value, Tensor) and value.ndim >= 2:
            return (value.shape[0], value.shape[1]), value.device
    return None, torch.device("cpu")


def _seen(cache: object, tokens: int) -> int | Tensor:
    length = getattr(cache, "get_seq_length", None)
    if length is None:
        # A paged cache, or none: only packed batches and prompts come with these.
        return 0
    try:
        seen: int | Tensor = length()
    except ValueError:  # no layer of attention, so no length: one token at a time is decode
        return int(tokens == 1)
    return seen


def _base(seen: int | Tensor, decodes: bool) -> int | Tensor:
    if not decodes:
        return PREFILL
    if isinstance(seen, Tensor):
        return torch.where(seen > 0, DECODE, PREFILL)
    return DECODE if seen > 0 else PREFILL


def _padding(mask: object, seen: int | Tensor, tokens: int) -> Tensor | None:
    if not isinstance(mask, Tensor):
        return None
    if mask.ndim == 2:
        return _columns(mask, seen, tokens) == 0
    if mask.ndim == 4 and tokens > 1 and mask.shape[-2] == tokens:
        visible = mask[:, 0] if mask.dtype == torch.bool else mask[:, 0] >= 0
        own = torch.arange(tokens, device=mask.device) + seen
        inside = own < mask.shape[-1]
        own = own.clamp(max=mask.shape[-1] - 1).view(1, -1, 1).expand(mask.shape[0], -1, 1)
        return ~visible.gather(2, own).squeeze(2) & inside
    return None


def _columns(mask: Tensor, seen: int | Tensor, tokens: int) -> Tensor:
    width = mask.shape[1]
    if width <= tokens:
        return mask[:, -tokens:]
    if isinstance(seen, Tensor):
        place = torch.arange(tokens, device=mask.device) + seen.to(mask.device)
        return mask.index_select(1, place.clamp(max=width - 1))
    return mask[:, seen : seen + tokens] if seen + tokens <= width else mask[:, -tokens:]


def _packed(queries: Tensor, keys: Tensor, rows: int) -> Tensor:
    queries, keys = queries.reshape(-1), keys.reshape(-1).to(queries.device)
    row = torch.arange(rows, device=queries.device, dtype=queries.dtype)
    sequence = torch.searchsorted(queries, row, right=True) - 1
    sequences = queries.shape[0] - 1
    inside = sequence.clamp(max=sequences - 1)
    decode = (queries.diff()[inside] == 1) & (keys.diff()[inside] > 1)
    kinds = torch.where(decode, DECODE, PREFILL)
    return torch.where(sequence >= sequences, PADDING, kinds)


def _first(value: object) -> object:
    """Of a mask per kind of attention, take the one that hides least."""
    if isinstance(value, Mapping):
        return value.get("full_attention", next(iter(value.values()), None))
    return value
