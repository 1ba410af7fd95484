"""The page in a real browser: what a person does with it, and what is then seen."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestServer

from benchmarks.browser import Browser, program
from xdpx.board.index import Index
from xdpx.board.server import Board
from xdpx.board.static_page import page_of

pytestmark = pytest.mark.skipif(program() is None, reason="there is no Chromium (Debian: apt-get install chromium)")

ROWS = "document.querySelectorAll('.row').length"
DRAWN = "Number(document.body.dataset.drawn ?? 0)"
INK = """(() => {
  const canvas = document.querySelector('.card canvas'), pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) seen.add(`${pixels[i]},${pixels[i + 1]},${pixels[i + 2]}`);
  return [...seen];
})()"""  # noqa: E501 - of another language


def row(name):
    return f"[...document.querySelectorAll('.row')].find((row) => row.textContent.includes({name!r}))"


@asynccontextmanager
async def board(root):
    index = Index(str(root))
    async with TestServer(Board(index).application()) as server, Browser() as browser:
        await browser.open(str(server.make_url("/")))
        await browser.until(f"{ROWS} >= 7")
        yield browser
        assert browser.console == []


def test_a_person_finds_chooses_and_follows_runs(root):
    async def test():
        async with board(root) as page:
            assert "nothing is drawn" in (await page.ask("document.querySelector('#grid').textContent")).lower()
            assert await page.ask("document.querySelectorAll('canvas').length") == 0

            # a name that is markup is a name
            assert await page.ask(f"{row('<script>alert(1)')} !== undefined")
            assert await page.ask(f"{row('中文/实验')}.querySelector('.mark').className") == "mark failed"

            # filter and sort
            await page.ask("const f = $('filter'); f.value = 'sweep dropout>=0.1'; f.oninput()")
            assert await page.until("$('count').textContent") == "2 of 7 runs"
            await page.ask("$('filter').value = ''; $('filter').oninput()")
            await page.ask(
                "[...document.querySelectorAll('.head button')].find((each) => each.textContent === 'best').click()"
            )
            first = await page.ask("document.querySelector('.row .open').textContent")
            assert first == "<script>alert(1)"  # 1.5, and the highest is first

            lower_is_better = "state.shown = [{ascending: false}, {ascending: false}]"
            assert not await page.ask(f"((shown) => {{ {lower_is_better}; const found = known.get('score').bigFirst(); "
                                      "state.shown = shown; return found; })(state.shown)")  # fmt: skip

            assert not await page.ask("columnOf('last:valid_loss').bigFirst()")
            assert await page.ask("columnOf('last:valid_acc').bigFirst()")

            # choose two runs: the major metric and the loss are drawn
            await page.ask(f"{row('sweep/run0')}.click(); {row('sweep/run1')}.click()")
            await page.until("document.querySelectorAll('.card canvas').length === 2")
            assert await page.ask("[...document.querySelectorAll('.card h3')].map((each) => each.textContent)") == [
                "acc", "loss",
            ]  # fmt: skip
            await page.until(f"{INK}.length > 20")
            assert "47,127,209" in await page.ask(INK)

            # an axis without outliers holds all that is none, also of more points than are sorted
            curve = (
                "{x: Float64Array.from({length: 20000}, (_, i) => i), y: Float64Array.from({length: 20000}, (_, i) => "
            )
            curve += "i === 7001 ? 1e6 : i === 13001 ? 1.75 : i % 2)}"
            low, high = await page.ask(f"XB.limits([{curve}], 0, 19999, {{outliers: true, log: false}})")
            assert -0.2 < low < 0
            assert 1.75 < high < 2

            # the ring of a run that began to count anew is at its best evaluation since then
            logs = "{column: (run, log, name) => ({valid_acc: [0.9, 0.4, 0.6], best_score: [0.9, 0.4, 0.6]})[name]}"
            run = "{id: 'a', valid: ['valid_acc', 'best_score'], metric: 'acc', ascending: true}"
            best = f"XB.Logs.prototype.best.call({logs}, {run}, [10, 20, 30], [0.9, 0.4, 0.6], (step) => step)"
            assert (await page.ask(best))["step"] == 30
            logs = logs.replace("[0.9, 0.4, 0.6]", "[0.9, 0.9, 0.9]").replace("})[", ", best_step: [NaN, 20, 20]})[")
            best = f"XB.Logs.prototype.best.call({logs}, {run}, [10, 20, 30], [0.9, 0.9, 0.9], (step) => step)"
            assert (await page.ask(best))["step"] == 20

            # hover: the values of both runs
            box = await page.ask("(({x, y, width, height}) => [x + width / 2, y + height / 2])"
                                 "(document.querySelector('.u-over').getBoundingClientRect())")  # fmt: skip
            await page.point(*box)
            text = await page.until("document.querySelector('.tip:not([hidden])')?.textContent")
            assert "sweep/run0" in text
            assert "sweep/run1" in text

            # what is appended to the log appears
            before = await page.ask(DRAWN)
            with (root / "sweep/run0/valid.log.tsv").open("a") as file:
                file.write("5\t450\t10\t1000\t45\t1\t0.99\t0.98\t0.02\t0.98\n")
            await page.until(f"{DRAWN} > {before}", 5)
            await page.until("logs.column(state.chosen[0], 'valid', 'step').at(-1) === 450", 5)
            await page.until(f"{row('sweep/run0')}.textContent.includes('0.98')", 5)

            # other axes
            for axis in ("samples", "time"):
                await page.click(f"#axis [data-value={axis}]")
                there = f"(chart) => chart.options.axis === '{axis}' && chart.curves.length"
                await page.until(f"[...state.charts.values()].every({there})")
            assert await page.ask("state.charts.get('acc').curves[0].x.at(-1)") == 45
            assert await page.ask("[0, 50, 100, 150, 300].map(XB.seen([[0, 20], [100, 60], [200, 10]]))") == [
                0, 1000, 2000, 5000, 9000,
            ]  # fmt: skip

    asyncio.run(test())


def test_a_run_can_be_looked_at_closely(root):
    async def test():
        async with board(root) as page:
            await page.ask(f"{row('sweep/run0')}.querySelector('.open').click()")
            await page.until("document.querySelectorAll('.detail nav button').length === 6")
            shown = "document.querySelector('.detail .content').textContent"
            tab = (
                "[...document.querySelectorAll('.detail nav button')].find((each) => each.textContent === '{}').click()"
            )
            for name, seen in [
                ("Settings", "batch_size"), ("Log", "step 19999"), ("Code", "xdpx/run.py"),
                ("Predictions", "41 of 100 rows are wrong"),
            ]:  # fmt: skip
                await page.ask(tab.format(name))
                await page.until(f"{shown}.includes('{seen}')")
            assert await page.ask("document.querySelector('.predictions tr:nth-child(2)').className") == "wrong"
            assert await page.ask("document.querySelectorAll('.predictions b').length") == 0  # the rows hold `<b>`
            await page.ask(tab.format("Evaluations"))
            await page.until("document.querySelector('iframe.page')?.getAttribute('sandbox') === ''")
            with (root / "sweep/run0/log.txt").open("a") as file:
                file.write("| the newest line\n")
            await page.ask(tab.format("Log"))
            await page.until(f"{shown}.includes('the newest line')")
            await page.click(".detail-head button")
            assert await page.ask("document.querySelector('.detail').hidden")
            page.console[:] = [line for line in page.console if "sandboxed" not in line]  # the script in the page

    asyncio.run(test())


def test_the_file_that_needs_no_server_shows_the_same(root, tmp_path):
    path = tmp_path / "runs.html"
    path.write_text(page_of([str(root / "sweep" / "run0"), str(root / "hf")]), encoding="utf-8")

    async def test():
        async with Browser(dark=True) as page:
            await page.open(path.as_uri())
            await page.until(f"{ROWS} === 2")
            await page.until("document.querySelectorAll('.card canvas').length >= 2")  # few runs: drawn at once
            await page.until(f"{INK}.length > 20")
            await page.ask(f"{row('run0')}.querySelector('.open').click()")
            await page.until("document.querySelectorAll('.detail nav button').length === 4")
            assert page.console == []

    asyncio.run(test())
