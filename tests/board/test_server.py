import asyncio
import json
import struct

import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer

from xdpx.board.index import Index
from xdpx.board.server import Board

TOKEN = "a-token-that-is-long-enough"


@pytest.fixture
def asking(root):
    """Return what runs a test with a client of a board that has looked at everything once."""

    def asking(test, token=""):
        async def all_of_it():
            index = Index(str(root))
            index.refresh()
            async with TestClient(TestServer(Board(index).application(token))) as client:
                await test(client)

        asyncio.run(all_of_it())

    return asking


async def runs(client):
    return {row["name"]: row for row in (await (await client.get("/api/runs?since=0")).json())["rows"]}


def unpacked(data):
    [length] = struct.unpack("<I", data[:4])
    heads, place, found = json.loads(data[4 : 4 + length]), 4 + length, []
    for head in heads:
        columns = {}
        for name in head["columns"]:
            columns[name] = np.frombuffer(data, "<f8", head["length"], place).tolist()
            place += 8 * head["length"]
        found.append((head, columns))
    return found


async def rows(client, files, wait=0):
    answer = await client.post("/api/rows", json={"files": files, "wait": wait})
    assert answer.status == 200
    return unpacked(await answer.read())


def test_a_page_gets_its_curves_and_then_only_what_was_added(asking, root):
    async def test(client):
        run = (await runs(client))["sweep/run0"]["id"]
        wanted = {"run": run, "log": "train", "columns": ["loss"], "at": ""}
        [(head, columns)] = await rows(client, [wanted])
        assert head["anew"]
        assert len(columns["loss"]) == 40
        wanted["at"] = head["at"]
        assert await rows(client, [wanted]) == []
        news = asyncio.create_task(rows(client, [wanted], wait=20))
        await asyncio.sleep(0.1)
        with (root / "sweep/run0/train.log.tsv").open("a") as file:
            file.write("5\t410\t0.125\t2\t10\t0.1\t0.4\n")
        [(head, columns)] = await asyncio.wait_for(news, 5)
        assert (head["anew"], columns["step"], columns["loss"]) == (False, [410], [0.125])

    asking(test)


def test_what_is_in_a_run_can_be_looked_at(asking):
    async def test(client):
        run = (await runs(client))["sweep/run0"]["id"]

        async def ask(path, **query):
            return await (await client.get(f"/api/{path}", params={"run": run, **query})).json()

        parts = await ask("parts")
        assert parts["config"][0] == "args.py"
        assert parts["predictions"] == ["predictions.tsv"]
        assert (await ask("text", name="log.txt", offset="-30"))["text"] == "| step 19998\n| step 19999\n"
        assert (await ask("zip", name="snapshot.zip"))["entries"] == [{"name": "xdpx/run.py", "size": 14}]
        assert "code" in (await ask("zip", name="snapshot.zip", entry="xdpx/run.py"))["text"]
        page = await ask("predictions", name="predictions.tsv", count="5")
        assert all(row["wrong"] for row in page["rows"])
        assert (await ask("epochs"))["borders"] == [100, 200, 300]
        html = await client.get("/api/html", params={"run": run, "name": "eval/best-dev.html"})
        assert html.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")

    asking(test)


@pytest.mark.parametrize(
    "name", ["../../../secret", "/etc/hostname", "stolen.log", "..", "", "eval", "nothing.txt", "%2e%2e/args.py"]
)
def test_no_file_but_those_of_the_run_is_given_out(asking, tmp_path, name):
    (tmp_path / "secret").write_text("secret")

    async def test(client):
        run = (await runs(client))["sweep/run0"]["id"]
        for path in ("text", "zip", "predictions", "html"):
            answer = await client.get(f"/api/{path}", params={"run": run, "name": name})
            assert answer.status == 404
        assert (await client.get("/page/..%2fserver.py")).status == 404
        assert (await client.get("/page/board.py")).status == 404
        assert (await client.get("/api/text", params={"run": "zork", "name": "log.txt"})).status == 404

    asking(test)


def test_a_request_that_is_malformed_is_refused_and_harms_nothing(asking):
    async def test(client):
        for body in ("zork", "[1]", '{"files": 3}', json.dumps({"files": [{}] * 3000})):
            assert (await client.post("/api/rows", data=body)).status == 400
        assert (await client.get("/api/runs?since=x")).status == 400
        answer = await client.post("/api/rows", json={"files": [{"run": "zork"}, 3, {"run": None}], "wait": "x"})
        assert unpacked(await answer.read()) == []

    asking(test)


def test_other_names_than_those_of_this_machine_are_refused(asking):
    async def test(client):
        for host in ("evil.example", "evil.example:6480", "127.0.0.1.evil.example", "", "[::"):
            assert (await client.get("/api/runs", headers={"Host": host})).status == 403
        for host in ("localhost:6480", "127.0.0.1", "[::1]:6480"):
            assert (await client.get("/api/runs", headers={"Host": host})).status == 200
        assert (await client.get("/api/runs", headers={"Sec-Fetch-Site": "cross-site"})).status == 403
        page = await client.get("/")
        assert "script-src 'self'" in page.headers["Content-Security-Policy"]
        assert page.headers["X-Content-Type-Options"] == "nosniff"

    asking(test)


def test_with_a_token_nothing_is_answered_without_it(asking):
    async def test(client):
        for path in ("/", "/api/runs", "/page/main.js", "/?token=wrong", "/api/zork"):
            assert (await client.get(path, allow_redirects=False)).status == 401
        answer = await client.get(f"/?token={TOKEN}", allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        headers = {"Host": "a.cluster.example", "Cookie": cookie.split(";")[0]}
        assert (await client.get("/api/runs", headers=headers)).status == 200
        assert (await client.get("/api/runs", headers={"Authorization": f"Bearer {TOKEN}"})).status == 200

    asking(test, TOKEN)
