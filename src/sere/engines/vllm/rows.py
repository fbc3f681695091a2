"""Row kinds of the running step, in memory that stays where it is.

The buffer is filled outside of the model's forward, from what the scheduler decided, and read inside it:
compiled code and captured graphs see the new kinds at the old address. No device is waited for.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sere.routing import DECODE, PADDING, PREFILL

_STAGES: Final = 4
"""Host copies used in turn, so that a step rarely meets one that is still being read."""


class RowKinds:
    """Kind of every row of the step, on the device.

    Attributes:
        kinds: Shape [capacity], int32; rows past the step's tokens are ``PADDING``.
        tokens: Rows of the step that are tokens, known to the host.
        decoding: Those of them that decode.
        dummies: Steps that served nobody, so far.

    """

    def __init__(self, capacity: int, device: torch.device | str) -> None:
        self.kinds = torch.full((capacity,), PADDING, dtype=torch.int32, device=device)
        self.tokens = self.decoding = self.dummies = 0
        pinned = self.kinds.device.type == "cuda"
        stages = 1 if self.kinds.device.type == "cpu" else _STAGES
        self._stages = [torch.empty(capacity, dtype=torch.int32, pin_memory=pinned) for _ in range(stages)]
        # What has not been recorded yet is not waited for.
        self._read: list[Any] = [torch.Event(self.kinds.device) for _ in self._stages] if pinned else []
        self._turn = 0
        self._written = capacity

    def fill(
        self, lengths: npt.NDArray[np.int32], decode: npt.NDArray[np.bool_], tokens: int | None = None
    ) -> None:
        """Write the kinds of a step.

        Args:
            lengths: Rows of each request, in batch order, shape [requests].
            decode: Whether each request's rows decode, shape [requests].
            tokens: Rows in all, where the engine runs fewer than it scheduled and shares them out on the
                device. Then a row's request is unknown, and rows decode only if all requests do.

        """
        scheduled = int(lengths.sum())
        tokens = scheduled if tokens is None else tokens
        if tokens > self.kinds.shape[0]:
            tokens = 0  # cannot be: the engine promised a capacity. Keep everything as routed.
        end = max(tokens, self._written)
        turn = self._turn
        stage = self._stages[turn]
        self._turn = (turn + 1) % len(self._stages)
        if self._read:
            self._read[turn].synchronize()  # done, unless the host is several steps ahead
        host = stage.numpy()
        if tokens == scheduled:
            host[:tokens] = np.repeat(np.where(decode, DECODE, PREFILL), lengths)
        else:
            host[:tokens] = DECODE if decode.all() else PREFILL
        host[tokens:end] = PADDING
        self.kinds[:end].copy_(stage[:end], non_blocking=True)
        if self._read:
            self._read[turn].record()
        self.tokens = self._written = tokens
        self.decoding = int(np.count_nonzero(host[:tokens] == DECODE))

    def clear(self) -> None:
        """Make every row padding: a step that serves nobody."""
        self.dummies += 1
        self.fill(np.zeros(0, np.int32), np.zeros(0, np.bool_))

    def of(self, rows: int) -> Tensor | None:
        """Kinds of a layer's ``rows`` rows, or None if they cannot be the step's rows."""
        if rows < self.tokens or rows > self.kinds.shape[0]:
            return None
        return self.kinds[:rows]
