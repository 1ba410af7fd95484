"""Draw docs/rooms.svg, the rooms of xdpx on their floors; when one was added or moved: `python docs/draw_rooms.py`."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PICTURE = Path(__file__).with_name("rooms.svg")
SHOWN = {
    "run": "x-train, x-prepro, …", "main": "x-exp", "serve": "", "commands": "parse, build, call",
    "runs": "door 1: configs", "trainer": "door 2: the Trainer", "experiments": "door 3: on JAX",
    "training": "the one loop, its life", "inference": "a finished run predicts", "tasks": "where data meets model",
    "datasets": "store, plans, inputs", "processors": "samples → batches", "losses": "what is minimised",
    "loaders": "raw file → records", "tokenizers": "text → ids", "models": "networks only",
    "optimizers": "rules, schedules", "engines": "take an update", "checkpoints": "whole or not there",
    "reports": "tables, figures", "metrics": "computed once", "config": "text → parameters",
    "logger": "one log", "utils": "any path, commits", "tuning": "trials of a search", "launch": "the same, elsewhere",
    "search": "who is tried, goes on", "board": "all runs on one page",
    "serving": "answers over HTTP",
}  # fmt: skip
"""What stands below the name of each room."""
COLOURS = {
    "runs": "#2f6fb3",
    "trainer": "#c9701a",
    "experiments": "#2f8f5b",
    "training": "#8b1e3f",
    "engines": "#8b1e3f",
}
"""The three doors, and the two rooms in which all of them meet."""
WIDTH, BOX, HEIGHT, STEP, GAP, MARGIN = 1320, 130, 46, 14, 10, 12


def drawn(floors: list[list[str]]) -> str:
    """Return the picture of these floors, the lowest first, as SVG."""
    step = HEIGHT + STEP
    height = MARGIN * 2 + step * len(floors)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif">',
        "<title>The rooms of xdpx on their floors; every import points down</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="4" refY="4" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#777"/></marker></defs>',
        f'<path d="M22 {MARGIN + 14}V{height - MARGIN - 20}" stroke="#777" stroke-width="1.5" marker-end="url(#tip)"/>',
        f'<text transform="translate(15 {height / 2}) rotate(-90)" text-anchor="middle" font-size="12" fill="#555">'
        "imports point down</text>",
    ]
    for number, floor in enumerate(floors):
        y = height - MARGIN - step * (number + 1) + STEP // 2
        parts.append(f'<path d="M40 {y + HEIGHT + STEP / 2:g}H{WIDTH - 10}" stroke="#e4e4e4"/>')
        left = 40 + (WIDTH - 50 - len(floor) * (BOX + GAP) + GAP) / 2
        parts += [_room(room, left + place * (BOX + GAP), y) for place, room in enumerate(floor)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _room(room: str, x: float, y: float) -> str:
    colour = COLOURS.get(room)
    name = f"{room}.py" if (REPOSITORY / f"xdpx/{room}.py").is_file() else f"{room}/"
    centre = x + BOX / 2
    return (
        f'<rect x="{x:g}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="7" fill="{colour or "#f4f6f8"}" '
        f'stroke="{colour or "#c3ccd5"}"/>'
        f'<text x="{centre:g}" y="{y + 19}" text-anchor="middle" font-size="14" font-weight="600" '
        f'fill="{"#ffffff" if colour else "#1d2733"}">{name}</text>'
        f'<text x="{centre:g}" y="{y + 36}" text-anchor="middle" font-size="10.5" '
        f'fill="{"#ffffff" if colour else "#55606c"}">{escape(SHOWN[room])}</text>'
    )


def floors_of_the_house() -> list[list[str]]:
    """Return the rooms that exist, floor by floor, as the test of layers has them."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.promises.layers import FLOORS

    there = {path.stem for path in (REPOSITORY / "xdpx").iterdir()}
    order = list(SHOWN)
    return [rooms for floor in FLOORS if (rooms := sorted(floor & there, key=order.index))]


if __name__ == "__main__":
    PICTURE.write_text(drawn(floors_of_the_house()), encoding="utf-8")
