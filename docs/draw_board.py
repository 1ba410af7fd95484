"""Draw docs/figures/board*.png from a real browser on generated runs: `python docs/draw_board.py`; needs Chromium.

The runs are those of a small sweep: their curves are drawn by formula, so the pictures are the same every time.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
import tempfile
from pathlib import Path

from aiohttp.test_utils import TestServer
from PIL import Image

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))
from benchmarks.browser import Browser  # noqa: E402
from xdpx.board.index import Index  # noqa: E402
from xdpx.board.server import Board  # noqa: E402

FIGURES = REPOSITORY / "docs" / "figures"
STEPS = 6_000
TEXTS = (
    "a gorgeous, witty, seductive movie.",
    "the plot is as thin as the paper it was written on.",
    "not bad at all, but hardly memorable.",
    "it never fails to entertain.",
    "an unmitigated bore.",
)
STATES = ["finished"] * 6 + ["running", "finished", "preempted", "finished", "failed", "finished"]


def write_sweep(root: Path) -> None:
    """Write twelve runs of a sweep over the learning rate and the dropout, with predictions for the first."""
    rates = [0.0003, 0.001, 0.003, 0.01]
    for number in range(12):
        rate, dropout = rates[number % 4], [0.1, 0.3, 0.5][number // 4]
        write_run(root / "sst2" / f"lr{rate:g}.dropout{dropout:g}", number, rate, dropout)
    rows = [
        (text, "positive" if row % 2 else "negative", "positive" if row % 3 else "negative", (row * 37 % 100) / 100)
        for row, text in enumerate(TEXTS * 40)
    ]
    lines = ["text\ttarget\tpred\ttarget_prob", *("\t".join(map(str, row)) for row in rows)]
    first = root / "sst2" / "lr0.001.dropout0.1"
    (first / "predictions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_run(folder: Path, number: int, rate: float, dropout: float) -> None:
    """Write the logs, the settings and the status of a run."""
    folder.mkdir(parents=True)
    drawn = random.Random(number)
    speed = 900 * rate**0.45
    settings = {"batch_size": 32, "update_freq": 1, "dropout": dropout, "learning_rate": rate, "major_metric": "acc"}
    lines = "".join(f"    {key!r}: {value!r},\n" for key, value in {**settings, "ascending_metric": True}.items())
    (folder / "args.py").write_text(f"# x-train sst2.hjson\n{{\n{lines}}}\n", encoding="utf-8")
    steps = STEPS if STATES[number] == "finished" else STEPS * (2 + number % 2) // 4
    train = ["epoch\tstep\tloss\tgnorm\tclip\twps\tups\tlr\tgpu_memory_gb"]
    for step in range(20, steps + 1, 20):
        loss = 0.1 + dropout / 4 + 0.62 * math.exp(-step * speed / 60_000) + drawn.gauss(0, 0.025)
        lr = rate * min(step / 600, 1) * max(0.05, 1 - step / STEPS)
        cells = [step // 1000 + 1, step, loss, abs(drawn.gauss(1.4, 0.3)), 0, drawn.gauss(41e3, 900), 10, lr, 6.2]
        train.append("\t".join(f"{cell:.6g}" for cell in cells))
    valid, best = ["epoch\tstep\ttrain_wall\ttrain_acc\tvalid_acc\tvalid_f1\tvalid_loss\tbest_score"], 0.0
    for step in range(200, steps + 1, 200):
        over = max(0.0, step - 3000) * 7e-6 * (0.6 - dropout) * (1 + 40 * rate)
        score = 0.55 + 0.36 * (1 - math.exp(-step * speed / 70_000)) - over - rate * 4 + drawn.gauss(0, 0.004)
        best = max(best, score)
        cells = [step // 1000 + 1, step, step / 10, score + 0.03 + 2 * over, score, score - 0.012, 1.05 - score, best]
        valid.append("\t".join(f"{cell:.6g}" for cell in cells))
    (folder / "train.log.tsv").write_text("\n".join(train) + "\n", encoding="utf-8")
    (folder / "valid.log.tsv").write_text("\n".join(valid) + "\n", encoding="utf-8")
    facts = {"status": STATES[number], "step": steps, "total_steps": STEPS, "fingerprint": "x", "best_score": best}
    (folder / "status.json").write_text(json.dumps(facts), encoding="utf-8")
    (folder / "log.txt").write_text("".join(f"| step {step}\n" for step in range(20, steps + 1, 20)), encoding="utf-8")


async def picture(page: Browser, path: Path) -> None:
    """Write what is seen, in few colours: a third of the bytes."""
    await page.picture(path)
    Image.open(path).convert("RGB").quantize(colors=160, dither=Image.Dither.NONE).save(path, optimize=True)


async def draw(root: Path, figures: Path) -> None:
    """Open the board on these runs and take the pictures."""
    async with TestServer(Board(Index(str(root))).application()) as server:
        for name, dark in (("board", False), ("board-dark", True)):
            async with Browser(1320, 780, dark=dark) as page:
                await page.open(str(server.make_url("/")))
                await page.until("state.whole && document.querySelectorAll('.row').length === 12")
                await page.ask("table.head.querySelectorAll('button')[2].click()")
                await page.ask("choose(state.shown.slice(0, 4).map((run) => run.id), true)")
                await page.ask("state.metrics = ['acc', 'loss', 'gnorm', 'wps']; showChosen()")
                await page.until("[...state.charts.values()].every((chart) => chart.curves.length >= 4)")
                await asyncio.sleep(0.3)
                x, y, width, height = await page.ask(
                    "(({x, y, width, height}) => [x, y, width, height])"
                    "(document.querySelector('.u-over').getBoundingClientRect())"
                )
                await page.point(x + width * 0.45, y + height * 0.4)
                await asyncio.sleep(0.3)
                await picture(page, figures / f"{name}.png")
                if not dark:
                    await page.ask(
                        "detail.open([...state.runs.values()].find((run) => run.name.endsWith('lr0.001.dropout0.1')))"
                    )
                    await page.until("document.querySelectorAll('.detail nav button').length >= 4")
                    await page.ask(
                        "[...document.querySelectorAll('.detail nav button')]"
                        ".find((each) => each.textContent === 'Predictions').click()"
                    )
                    await page.until("document.querySelectorAll('.predictions tr').length > 5")
                    await picture(page, figures / "board-predictions.png")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        write_sweep(Path(name) / "out")
        asyncio.run(draw(Path(name) / "out", target))
