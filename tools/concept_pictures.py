"""Draw the pictures of docs/concepts.md: routing by the library's own functions, so that they cannot lie.

python tools/concept_pictures.py            # rewrite docs/pictures/*.svg
python tools/concept_pictures.py --check    # exit code 1 if a picture is not what the code gives
"""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path

import torch

from sere.report.charts.style import HUES, figure, svg
from sere.routing import LayerStatistics, RoutingBatch, make_policy

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
STYLE = """<style>
svg { --ink: #1b1f24; --faint: #6b7480; --paper: #ffffff; --hue-0: #0b62c4; --hue-1: #b4460a;
  --hue-2: #1d7a45; --hue-3: #8a3fb0; }
@media (prefers-color-scheme: dark) { svg { --ink: #e8ebee; --faint: #98a2ae; --paper: #14171b;
  --hue-0: #6cb2ff; --hue-1: #ff9e62; --hue-2: #6fd39a; --hue-3: #d59bf5; } }
text { font-family: system-ui, sans-serif !important; fill: var(--ink); }
* { stroke-linejoin: round; stroke-linecap: butt; }
</style>"""
EXPERTS = 8
IDS = [[0, 3, 6], [1, 0, 5], [4, 3, 7], [4, 5, 2]]
WEIGHTS = [[0.6, 0.25, 0.15], [0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.55, 0.25, 0.2]]
CELL, LEFT, TOP, GAP = 34, 96, 54, 56


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    FOLDER.mkdir(exist_ok=True)
    stale = []
    for name, text in {"step.svg": step(), "curve.svg": curve(), "parts.svg": parts()}.items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    print("changed" if stale else "unchanged", *stale)
    sys.exit(bool(check and stale))


def alike() -> LayerStatistics:
    """Experts are the more alike the nearer their numbers are."""
    index = torch.arange(EXPERTS, dtype=torch.float32)
    return LayerStatistics(1 - (index[:, None] - index).abs() / EXPERTS)


def step() -> str:
    """Draw four rows over eight experts, as routed and as SERE with S=1 routes them."""
    ids, weights = torch.tensor(IDS), torch.tensor(WEIGHTS)
    batch = RoutingBatch(ids, weights, EXPERTS)
    routes = make_policy("sere", top_s=1, floor=0).route(batch, alike())
    after = routes.ids.tolist()
    height = TOP + len(IDS) * CELL + GAP
    whole = LEFT + EXPERTS * CELL + 12
    parts = [
        *_grid(IDS, 0, "as the router chose"),
        *_grid(after, height, "re-routed: sere, S=1"),
    ]
    words = (
        f"Four tokens over eight experts. The router's choice reads {len({*chain(*IDS)})} experts; after "
        f"re-routing {len({*chain(*after)})} are read, and every token keeps its heaviest expert."
    )
    return _document(whole, 2 * height, parts, words)


def _grid(rows: list[list[int]], top: int, title: str) -> list[str]:
    read = sorted({*chain(*rows)})
    out = [
        f'<text x="4" y="{top + 18}" font-size="15" font-weight="600">{title}: {len(read)} experts read</text>'
    ]
    for expert in range(EXPERTS):
        x = LEFT + expert * CELL
        out.append(
            f'<text x="{x + CELL / 2}" y="{top + TOP - 8}" text-anchor="middle" font-size="12">{expert}</text>'
        )
        if expert in read:
            y = top + TOP + len(rows) * CELL + 6
            out.append(f'<rect x="{x + 3}" y="{y}" width="{CELL - 6}" height="8" fill="var(--hue-1)"/>')
    y = top + TOP + len(rows) * CELL + 14
    out.append(f'<text x="4" y="{y}" font-size="12">read</text>')
    for place, slots in enumerate(rows):
        y = top + TOP + place * CELL
        out.append(f'<text x="4" y="{y + CELL / 2 + 4}" font-size="12">token {place + 1}</text>')
        share = dict.fromkeys(slots, 0.0)
        for slot, expert in enumerate(slots):
            share[expert] += WEIGHTS[place][slot]
        for expert in range(EXPERTS):
            x, part = LEFT + expert * CELL, share.get(expert, 0.0)
            fill = f'fill="var(--hue-0)" fill-opacity="{0.25 + 0.75 * part:.2f}"' if part else 'fill="none"'
            out.append(
                f'<rect x="{x + 2}" y="{y + 2}" width="{CELL - 4}" height="{CELL - 4}" rx="4" {fill} stroke="var(--faint)"/>'
            )
    return out


def curve() -> str:
    """Draw how many of 128 experts a batch names, if routing is uniform: E (1 - (1 - k / E)^B)."""
    sizes = [1, 2, 4, 8, 16, 32, 64, 128]
    lines = {"all 8 of a token": 8, "its 2 heaviest": 2, "its heaviest": 1}
    with figure(5.6, 3.4) as (drawn, axes):
        for place, (name, slots) in enumerate(lines.items()):
            values = [128 * (1 - (1 - slots / 128) ** size) for size in sizes]
            axes.plot(sizes, values, color=HUES[place], marker="osD"[place], label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("tokens decoded together")
        axes.set_ylabel("distinct experts, of 128")
        axes.legend(loc="upper left", fontsize=10)
        words = (
            "Distinct experts against batch size under uniform routing: 16 tokens name 82 of "
            "128 experts by all slots, 15 by their heaviest."
        )
        text = svg(drawn, "curve", words)
    return text.replace("<svg ", '<svg width="460" ', 1).replace(">", f">{STYLE}", 1) + "\n"


def parts() -> str:
    """Draw the three choices of a policy, one below the other."""
    boxes = [
        ("router's choice", "ids and weights of every slot", "var(--faint)"),
        ("select", "which experts stay active in this step", "var(--hue-0)"),
        ("fill", "what becomes of a slot whose expert does not", "var(--hue-1)"),
        ("weigh", "the weight that the slot carries", "var(--hue-2)"),
        ("experts", "fewer of them are read", "var(--faint)"),
    ]
    out = []
    for place, (name, what, colour) in enumerate(boxes):
        y = 6 + place * 74
        out += [
            f'<rect x="6" y="{y}" width="348" height="52" rx="8" fill="none" stroke="{colour}" stroke-width="2.5"/>',
            f'<text x="180" y="{y + 22}" text-anchor="middle" font-size="16" font-weight="600">{name}</text>',
            f'<text x="180" y="{y + 42}" text-anchor="middle" font-size="13">{what}</text>',
        ]
        if place + 1 < len(boxes):
            out.append(
                f'<path d="M180 {y + 53} v16 m-5 -6 l5 6 l5 -6" fill="none" stroke="var(--ink)" stroke-width="1.5"/>'
            )
    return _document(
        360, 6 + 74 * len(boxes) - 16, out, "Router's choice, then select, fill, weigh, then the experts."
    )


def _document(width: int, height: int, parts: list[str], words: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([f'{head} role="img" aria-label="{words}">{STYLE}', *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
