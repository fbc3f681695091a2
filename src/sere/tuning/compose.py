"""From one setting for each batch size to one policy."""

from __future__ import annotations

from collections.abc import Mapping

UNMODIFIED = "none"


def compose(settings: Mapping[int, str | None]) -> str | None:
    """Write one policy that takes each setting from its batch size on.

    A single batch size gives its setting alone, for steps of any size. Of several, steps smaller than the
    smallest stay as routed.

    Args:
        settings: Batch size, rising, to a short form; None leaves it as routed.

    Returns:
        Short form, ``oea:top_s=3@4|oea:top_s=2@16``; None if nothing is changed anywhere.

    """
    forms = {size: form or UNMODIFIED for size, form in settings.items()}
    if set(forms.values()) <= {UNMODIFIED}:
        return None
    if len(forms) == 1:
        return next(iter(forms.values()))
    parts: list[tuple[int, str]] = []
    for size, form in forms.items():
        last = parts[-1][1] if parts else UNMODIFIED
        if form != last:
            parts.append((size, form))
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return "|".join(f"{form}@{size}" for size, form in parts)
