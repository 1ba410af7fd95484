from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from xdpx.config.args_file import write_args
from xdpx.config.loading import load
from xdpx.config.printing import json_text, runs_text

pytestmark = pytest.mark.usefixtures("rooms")
Write = Callable[..., Path]

LOOP = """{
  __parent__: [[{side: 3}, {side: 4}]]
  shape: square
  save_dir: out/${side}
  batch_size: 32
  interval: "@{batch_size:64}/50"
}
"""


def test_a_dry_run_shows_headings_stars_relative_numbers_and_every_run(write: Write) -> None:
    write("draw.hjson", LOOP)
    text = runs_text(load("draw", "x-draw"))
    assert text.startswith("x-draw draw.hjson: 2 runs\n(draw)\n  shape*: square\n")
    assert "  (log)\n    interval*: 100   (@{batch_size:64}/50)" in text
    assert "  learning_rate: 0.001" in text
    assert text.endswith("runs\n  1  side=3\n  2  side=4")


def test_json_holds_a_flat_object_for_each_run(write: Write) -> None:
    write("draw.hjson", LOOP)
    runs = json.loads(json_text(load("draw", "x-draw")))
    assert [run["side"] for run in runs] == [3, 4]
    assert runs[0]["interval"] == 100
    assert runs[0]["source"] is None


def test_resuming_shows_what_differs_from_the_stored_run(write: Write) -> None:
    write("draw.hjson", LOOP)
    first, _ = load("draw", "x-draw")
    Path("out/3").mkdir(parents=True)
    write_args(first, "out/3/args.py")
    text = runs_text(load("draw", "x-draw", ["batch_size=64", "resume=true"])[:1])
    assert "differences from out/3/args.py\n  +- batch_size: 32 -> 64\n  +- interval: 100 -> 50" in text
