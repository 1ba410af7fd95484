"""Runs in an object store: table, curves, log and predictions, code, and the page of one file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from aiohttp.test_utils import TestClient, TestServer

from tests.board.test_server import rows, runs
from tests.board.test_static_page import data_of
from xdpx.board.index import Index
from xdpx.board.server import Board
from xdpx.board.static_page import page_of
from xdpx.utils import io

NAMES = ("sweep/run0", "sweep/run1", "hf", "中文/实验", "damaged")


def test_runs_in_a_bucket_are_shown_as_those_on_a_disk(root: Path, s3_root: str) -> None:
    for name in NAMES:
        (root / name / "stolen.log").unlink(missing_ok=True)
        io.copytree(str(root / name), f"{s3_root}/runs/{name}")
    index = Index(f"{s3_root}/runs")
    index.refresh()
    near = Index(str(root))
    near.refresh()

    def table(board: Index) -> dict[str, dict[str, object]]:
        return {str(row["name"]): row for row in board.since(0).rows}

    far_rows, near_rows = table(index), table(near)
    for name in NAMES:
        for key in ("state", "step", "total", "score", "metric", "door", "trouble", "last"):
            assert far_rows[name][key] == near_rows[name][key], (name, key)

    async def test() -> None:
        async with TestClient(TestServer(Board(index).application(""))) as client:
            run = (await runs(client))["sweep/run0"]["id"]
            wanted = {"run": run, "log": "train", "columns": ["loss"], "at": ""}
            [(head, columns)] = await rows(client, [wanted])
            assert len(columns["loss"]) == 40
            text = Path(root / "sweep/run0/train.log.tsv").read_text()
            with io.open(f"{s3_root}/runs/sweep/run0/train.log.tsv", "w") as file:
                file.write(text + "5\t410\t0.01\t2\t10\t0.004\t0.4\n")
            [(head, columns)] = await rows(client, [{**wanted, "at": head["at"]}])
            assert (head["anew"], columns["step"]) == (False, [410.0])
            parts = await (await client.get(f"/api/parts?run={run}")).json()
            assert "log.txt" in json.dumps(parts)
            text = await (await client.get(f"/api/text?run={run}&name=log.txt&offset=-1000")).text()
            assert "step 19999" in text
            assert (
                "print('code')"
                in await (await client.get(f"/api/zip?run={run}&name=snapshot.zip&entry=xdpx/run.py")).text()
            )
            assert '"errors"' in await (await client.get(f"/api/predictions?run={run}&name=predictions.tsv")).text()

    asyncio.run(test())
    page = data_of(page_of([f"{s3_root}/runs/sweep/run0", f"{s3_root}/runs/hf"]))
    first, second = page["runs"]["rows"]
    assert (first["name"], second["door"]) == ("run0", "Trainer")
    assert page["predictions"][first["id"]]["predictions.tsv"]["errors"] == 41
