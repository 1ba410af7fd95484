"""The page in a real browser: what a person does with it, and what is then seen."""

import asyncio

import pytest

from benchmarks.browser import Browser, program
from tests.serving.conftest import Serving
from xdpx.inference.answers import Prediction
from xdpx.inference.session import load_run

pytestmark = pytest.mark.skipif(program() is None, reason="there is no Chromium (Debian: apt-get install chromium)")

TYPED = "(text) => [...document.querySelectorAll('textarea')].forEach((area, index) => area.value = text[index])"
SEEN = "document.querySelector('.answer')?.textContent"


class Pairs:
    """A run that reads pairs, and finds those alike that are the same."""

    checkpoint, labels, text_fields = None, ["same", "other <b>"], ("text_1", "text_2")
    gives_lists = False

    def __init__(self, folder):
        self.run = load_run(folder)
        self.config = self.run.config

    def encode(self, rows):
        lengths = self.run.encode(["good"] * len(rows))
        return [type("Row", (), {"length": row.length, "row": texts}) for row, texts in zip(lengths, rows, strict=True)]

    def answer(self, rows):
        shares = [0.9 if row.row[0] == row.row[1] else 0.2 for row in rows]
        return [
            Prediction(self.labels[share < 0.5], dict(zip(self.labels, (share, 1 - share), strict=True)))
            for share in shares
        ]


def test_a_person_types_and_sees_probabilities(run):
    folders = {"tiny": str(run), "pairs": f"{run}/."}

    async def test(address):
        async with Browser() as page:
            await page.open(address)
            await page.until("document.querySelectorAll('textarea').length === 1")
            await page.ask(f"({TYPED})(['very good <i>film</i>'])")
            await page.click("#go")
            await page.until(f"{SEEN}?.includes('%')")
            assert await page.ask("document.querySelectorAll('.answer i').length") == 0  # text is not markup
            first, second = await page.ask(
                "[...document.querySelectorAll('.fill')].map((bar) => bar.getBoundingClientRect().width)"
            )
            assert first > second > 0
            assert await page.ask("document.querySelector('.name.first').textContent") in {"pos", "neg"}

            # several lines at once
            await page.ask(f"({TYPED})(['good film\\n\\nbad plot'])")
            await page.click("#lines")
            await page.click("#go")
            await page.until("document.querySelectorAll('.answer tr').length === 3")

            # what cannot be answered is told
            await page.ask(f"({TYPED})(['a\\0b'])")
            await page.click("#go")
            assert "NUL" in await page.until("document.querySelector('#trouble:not([hidden])')?.textContent")

            # another model, which reads pairs
            await page.ask("$('model').value = 'pairs'; $('model').onchange()")
            assert await page.ask("document.querySelectorAll('textarea').length") == 2
            await page.ask(f"({TYPED})(['one', 'two'])")
            await page.click("#go")
            assert "other <b>" in await page.until(f"{SEEN}.includes('80.0 %') && {SEEN}")
            assert await page.ask("document.querySelector('#trouble').hidden")
            assert [line for line in page.console if "422" not in line] == []
            await page.open(f"{address}/docs")
            await page.until("document.querySelectorAll('.docs section').length >= 7")

    with Serving(
        folders, open_run=lambda folder, threads: Pairs(folder) if folder.endswith(".") else load_run(folder)
    ) as server:
        asyncio.run(test(server.address))
