"""Draw docs/figures/serve*.png from a real browser on a real model: `python docs/draw_serve.py`; needs Chromium.

The model is that of the demo, which tells the topic of docstrings of Python's standard library; it is trained here.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))
from benchmarks.browser import Browser  # noqa: E402

FIGURES = REPOSITORY / "docs" / "figures"
DEMO = REPOSITORY / "examples" / "demo"
TEXTS = (
    "Compress the data and write it to an archive.",
    "Run a coroutine in another thread, and wait for its result.",
    "Draw a circle with a given radius on the canvas.",
)


def trained(folder: Path) -> Path:
    """Train the model of the demo below a folder, and return the folder of the run."""
    subprocess.run([sys.executable, DEMO / "stdlib_docstrings.py", folder / "raw"], check=True)
    places = [f"data_dir={folder / 'data'}"]
    words = ["x-prepro", DEMO / "prepro", f"data_source={folder / 'raw'}", *places]
    words += ["x-train", DEMO / "train", *places, f"save_dir={folder / 'topics'}"]
    subprocess.run([sys.executable, "-m", "xdpx.run", *map(str, words)], check=True, env=_environment())
    return folder / "topics"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


async def draw(address: str, figures: Path) -> None:
    """Type some texts into the page, and take its picture, light and dark."""
    for name, dark in (("serve", False), ("serve-dark", True)):
        async with Browser(880, 800, dark=dark) as page:
            await page.open(address)
            await page.until("document.querySelectorAll('textarea').length === 1")
            for number, text in enumerate(TEXTS, start=1):
                await page.ask(f"document.querySelector('textarea').value = {text!r}")
                await page.click("#go")
                await page.until(f"document.querySelectorAll('.answer').length === {number}")
            await asyncio.sleep(0.4)
            path = figures / f"{name}.png"
            await page.picture(path)
            Image.open(path).convert("RGB").quantize(colors=160, dither=Image.Dither.NONE).save(path, optimize=True)


def main(figures: Path, run: Path) -> None:
    """Serve a run and take the pictures."""
    words = [sys.executable, "-m", "xdpx.run", "x-serve", str(run)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
        told = process.stdout.readline() if process.stdout else ""
        try:
            asyncio.run(draw(re.findall(r"http://\S+", told)[0], figures))
        finally:
            process.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        main(target, Path(sys.argv[2]) if len(sys.argv) > 2 else trained(Path(name)))
