"""Requests over a real socket, polite and hostile, while the server works and while it ends."""

import asyncio
import http.client
import json
import math
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from tests.serving.conftest import Serving
from xdpx.inference import export_folder
from xdpx.inference.answers import Prediction
from xdpx.inference.session import load_run
from xdpx.serving.application import NO_KIND, SEND_JSON
from xdpx.serving.batching import Sizes
from xdpx.serving.counting import Counts
from xdpx.serving.models import Model
from xdpx.serving.shapes import MOST_CHARACTERS, MOST_ROWS, Limits, answers_of
from xdpx.utils import commit

TEXTS = ["good film", "bad plot", "very good plot very good", "not good", "", "电影 😀"]
TOKEN = "a-token-that-is-long-enough"


def ask(address, body=None, **headers):
    """Return the status, the headers, and the content of an answer."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    asked = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            found, content = answer, answer.read()
    except urllib.error.HTTPError as error:
        found, content = error, error.read()
    kind = found.headers.get("Content-Type", "")
    return found.status, found.headers, json.loads(content) if "json" in kind else content.decode()


def test_answers_are_those_of_predict(serving, run):
    expected = load_run(run).predict(TEXTS)
    status, _, found = ask(f"{serving.address}/predict_batch", {"texts": TEXTS})
    assert status == 200
    for one, other in zip(found, expected, strict=True):
        assert one["label"] == other.label
        assert one["probabilities"] == pytest.approx(other.probabilities, abs=1e-6)
    alone = ask(f"{serving.address}/models/tiny/predict", {"text": TEXTS[0]})[2]
    assert alone["probabilities"] == pytest.approx(found[0]["probabilities"], abs=1e-6)
    assert ask(f"{serving.address}/predict_batch", {"texts": []})[2] == []
    [facts] = ask(f"{serving.address}/models")[2]
    assert (facts["name"], facts["texts"], facts["labels"]) == ("tiny", ["text"], ["neg", "pos"])


@pytest.mark.parametrize(("labels", "listed"), [((), []), (("a",), ["a"]), (("a", "b"), ["a", "b"])])
def test_every_answer_of_a_model_with_several_labels_lists_them(labels, listed):
    one = Prediction(",".join(labels), {}, labels)
    assert list(answers_of([one], with_lists=True)[0]["labels"]) == listed
    assert ("labels" in answers_of([one], with_lists=False)[0]) == (len(labels) > 1)


def test_exact_answers_have_the_bits_of_predict_whatever_they_are_asked_with(run):
    open_run = partial(load_run, exact=True)
    expected = [one.probabilities for one in open_run(run).predict(TEXTS)]
    with Serving({"tiny": str(run)}, sizes=Sizes(threads=1), open_run=open_run) as server:
        together = ask(f"{server.address}/predict_batch", {"texts": TEXTS * 5})[2]
        alone = [ask(f"{server.address}/predict", {"text": text})[2] for text in TEXTS]
    assert [one["probabilities"] for one in together] == expected * 5
    assert [one["probabilities"] for one in alone] == expected


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/predict", b"{", 400, "not JSON"),
        ("/predict", {"text": 3}, 422, "text: Input should be a valid string"),
        ("/predict", {"txt": "a"}, 422, "text: Field required"),
        ("/predict", {"text": "a\0b"}, 422, "NUL"),
        ("/predict", b'{"text": "\\ud800"}', 422, "unicode"),
        ("/predict", {"pair": ["a", "b"]}, 422, "Each row of this model is one text"),
        ("/predict_batch", {"pairs": [[]]}, 422, "pairs.0"),
        ("/predict", {"text": "a" * (MOST_CHARACTERS + 1)}, 422, "at most 100000"),
        ("/predict_batch", {"texts": ["a"] * (MOST_ROWS + 1)}, 422, "at most 1024"),
        ("/predict", b"[" * 100_000, 400, "not JSON"),
        ("/models/other/predict", {"text": "a"}, 404, "but: tiny"),
        ("/page/serve.py", None, 404, "no such file"),
        ("/page/..%2fguard.py", None, 404, ""),
        ("/predict", None, 405, ""),
    ],
)
def test_what_cannot_be_answered_is_told_in_a_sentence(serving, path, body, status, said):
    found, _, told = ask(serving.address + path, body)
    assert found == status, told
    assert said in told["detail"]


def test_json_that_is_sent_as_something_else_is_told_the_header(serving):
    status, _, told = ask(f"{serving.address}/predict", {"text": "good"}, **{"Content-Type": "text/plain"})
    assert (status, told["detail"]) == (400, f"The body is not JSON, but text/plain. {SEND_JSON}")
    with closing(http.client.HTTPConnection(*serving.ear.getsockname(), timeout=20)) as line:
        line.request("POST", "/predict", b'{"text": "good"}')  # names no kind
        answer = line.getresponse()
        assert (answer.status, json.load(answer)["detail"]) == (400, f"{NO_KIND} {SEND_JSON}")
        line.request("POST", "/predict")
        answer = line.getresponse()
        assert (answer.status, json.load(answer)["detail"]) == (422, "body: Field required.")


def test_a_monitor_may_ask_for_the_health_without_its_text(serving):
    with closing(http.client.HTTPConnection(*serving.ear.getsockname(), timeout=20)) as line:
        line.request("HEAD", "/health")
        answer = line.getresponse()
        assert (answer.status, answer.read()) == (200, b"")


def test_a_row_without_a_number_and_a_failure_are_told_in_a_sentence_too(run, monkeypatch):
    with Serving({"tiny": str(run)}) as server:
        answers = {"nan": Prediction("pos", {"neg": math.nan, "pos": 0.5}), "inf": Prediction(None, {}, score=math.inf)}

        async def predict(texts):
            return [answers.get(each) or Prediction(each, {"neg": 1 / (each != "zero")}) for each in texts]

        monkeypatch.setattr(server.models.get("tiny"), "predict", predict)
        for odd in answers:
            status, _, told = ask(f"{server.address}/predict_batch", {"texts": ["good", odd]})
            assert (status, told["detail"][:10]) == (422, "texts[1]: ")
        status, _, told = ask(f"{server.address}/predict", {"text": "zero"})
        assert (status, told["detail"][:35]) == (500, "The model failed (ZeroDivisionError")
        assert ask(f"{server.address}/predict", {"text": "good"})[0] == 200


def test_a_request_that_is_too_large_or_too_slow_is_refused(run):
    with Serving({"tiny": str(run)}, limits=Limits(body=1000, seconds=0.3)) as server:
        assert ask(f"{server.address}/predict", {"text": "a" * 2000})[0] == 413
        host = server.address.removeprefix("http://")

        def told(*pieces):
            name, port = host.split(":")
            with socket.create_connection((name, int(port)), 10) as line:
                line.sendall(f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n".encode())
                for piece in pieces:
                    line.sendall(piece)
                return line.recv(100)

        chunks = (
            b"Transfer-Encoding: chunked\r\n\r\n"
            + b"200\r\n"
            + b"a" * 512
            + b"\r\n"
            + b"400\r\n"
            + b"a" * 1024
            + b"\r\n"
        )
        assert b" 413 " in told(chunks)
        assert b" 408 " in told(b"Content-Length: 9\r\n\r\n", b'{"')
        assert ask(f"{server.address}/predict", {"text": "good"})[0] == 200


def test_only_this_machine_is_answered_or_who_has_the_token(serving, run):
    assert ask(f"{serving.address}/models", Host="attacker.example")[0] == 403
    assert ask(f"{serving.address}/models", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    with Serving({"tiny": str(run)}, token=TOKEN) as server:
        assert ask(f"{server.address}/models")[0] == 401
        assert ask(f"{server.address}/models", Authorization="Bearer wrong")[0] == 401
        assert ask(f"{server.address}/models", Authorization=f"Bearer {TOKEN}", Host="a.example")[0] == 200
        assert ask(f"{server.address}/models", Authorization=f"bearer {TOKEN}")[0] == 200
        assert ask(f"{server.address}/predict", {"text": "good"}, Cookie=f"xdpx_serve={TOKEN}")[0] == 200
        assert ask(f"{server.address}/health")[2] == {"status": "ok", "models": ["tiny"], "waiting": 0}


def test_pages_and_metrics_come_from_here_alone(serving):
    for path in ("/", "/docs", "/page/serve.js", "/page/serve.css"):
        status, headers, text = ask(serving.address + path)
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert not re.search(r"(src|href|url)\W{1,3}(https?:)?//", text)
    assert "/models/{name}/predict_batch" in ask(f"{serving.address}/docs")[2]
    assert {"/predict", "/predict_batch", "/health", "/metrics"} <= ask(f"{serving.address}/openapi.json")[2][
        "paths"
    ].keys()
    ask(f"{serving.address}/predict", {"text": "good"})
    counted = ask(f"{serving.address}/metrics")[2]
    assert re.search(r'xdpx_requests_total\{model="tiny",status="200"\} [1-9]', counted)


class Slow:
    """A run that answers slowly."""

    def __init__(self, folder, *, threads):
        self.run = load_run(folder, threads=threads)

    def __getattr__(self, name):
        return getattr(self.run, name)

    def answer(self, rows):
        time.sleep(0.05)
        return self.run.answer(rows)


def test_where_too_many_rows_wait_the_answer_is_try_again(run):
    async def test(address):
        async with aiohttp.ClientSession(address) as client:

            async def status():
                async with client.post("/predict_batch", json={"texts": ["good"] * 4}) as answer:
                    return answer.status, answer.headers.get("Retry-After")

            return await asyncio.gather(*(status() for _ in range(30)))

    with Serving({"tiny": str(run)}, sizes=Sizes(rows=2, waiting=8), open_run=Slow) as server:
        found = asyncio.run(test(server.address))
        assert {status for status, _ in found} == {200, 429}
        assert all(int(wait) >= 1 for status, wait in found if status == 429)
        assert ask(f"{server.address}/predict", {"text": "good"})[0] == 200


def test_none_is_lost_when_the_server_ends_under_load(run):
    answered, refused, lost = [], [], []

    async def one(address, number):
        async with aiohttp.ClientSession(address) as client:
            while True:
                try:
                    async with client.post("/predict", json={"text": f"good film {number}"}) as answer:
                        answered.append(answer.status)
                        assert (await answer.json())["label"] == "pos"
                except aiohttp.ClientConnectorError:  # it listens no more, so nothing was sent
                    refused.append(number)
                    return
                except aiohttp.ClientError as error:
                    lost.append(repr(error))
                    return

    async def all_of_them(address):
        await asyncio.gather(*(one(address, number) for number in range(20)))

    server = Serving({"tiny": str(run)}, open_run=Slow)
    with server:
        load = threading.Thread(target=asyncio.run, args=[all_of_them(server.address)])
        load.start()
        time.sleep(0.5)
    load.join(20)
    assert lost == []
    assert len(refused) == 20
    assert set(answered) == {200}
    assert len(answered) > 40


def write_better(folder, checkpoint):
    """Add a checkpoint that the log calls better to a run, and return its path."""
    better = folder / "checkpoint-99.pt"
    shutil.copy(checkpoint, better)
    rows = (folder / "valid.log.tsv").read_text().splitlines()
    told = {"step": "99", "best_score": "0.999"}
    row = dict(zip(rows[0].split("\t"), rows[-1].split("\t"), strict=True)) | told
    with (folder / "valid.log.tsv").open("a") as log:
        log.write("\t".join(row.values()) + "\n")
    return better


def test_a_better_checkpoint_takes_over_and_a_damaged_one_does_not(run, tmp_path):
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    with Serving({"tiny": str(folder)}) as server:
        model = server.models.get("tiny")
        assert not model.refresh()
        better = write_better(folder, model.facts.checkpoint)
        assert model.refresh()
        assert model.facts.checkpoint == str(better)
        assert ask(f"{server.address}/predict", {"text": "good"})[0] == 200
        better.write_bytes(b"no weights")
        assert not model.refresh()
        assert ask(f"{server.address}/predict", {"text": "good"})[0] == 200
        assert 'xdpx_loads_total{model="tiny",result="failed"} 1.0' in ask(f"{server.address}/metrics")[2]


def test_a_better_checkpoint_that_could_not_be_opened_for_a_while_takes_over_later(run, tmp_path, monkeypatch):
    monkeypatch.setattr("xdpx.serving.models.LOOKS", 0.05)
    folder, failures = Path(shutil.copytree(run, tmp_path / "run")), iter(["", "no network", "no network"])

    def failing(save_dir, **more):
        if words := next(failures, ""):
            raise OSError(words)
        return load_run(save_dir, **more)

    with Serving({"tiny": str(folder)}, open_run=failing, sizes=Sizes(threads=1)) as server:
        model = server.models.get("tiny")
        better = write_better(folder, model.facts.checkpoint)
        assert not model.refresh()
        deadline = time.monotonic() + 20
        while model.facts.checkpoint != str(better) and time.monotonic() < deadline:
            model.refresh()
            time.sleep(0.02)
        assert model.facts.checkpoint == str(better)
        assert 'result="failed"} 2.0' in ask(f"{server.address}/metrics")[2]


def test_weights_that_are_gone_and_labels_that_are_others_are_warned_of(run, tmp_path, caplog):
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    model = Model("tiny", str(folder), load_run, Sizes(threads=1), Counts(), cores=1)
    folder.rename(tmp_path / "away")
    assert not model.refresh()
    assert "no weights" not in caplog.text  # they may be in the middle of a replacement
    assert not any(model.refresh() for _ in range(3))
    assert caplog.text.count("tiny: no weights are found") == 1
    (tmp_path / "away").rename(folder)
    write_better(folder, model.facts.checkpoint)
    (folder / "resources.manifest.json").unlink(missing_ok=True)
    (folder / "target_map.txt").write_text("pos\nneg\n")
    assert model.refresh()
    model.close()
    assert "tiny: its labels are now pos, neg; they were neg, pos" in caplog.text


def test_tokens_that_were_copied_after_the_weights_are_read_too(run, tmp_path):
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    for name in ("vocab.txt", "target_map.txt"):
        shutil.copy(Path(run).parent / "data" / name, folder)
    better = write_better(folder, load_run(folder).checkpoint)
    commit.seal(folder, better.stem, [better.name])
    model = Model("tiny", str(folder), load_run, Sizes(threads=1), Counts(), cores=1)
    assert not model.refresh()
    (folder / "target_map.txt").write_text("pos\nneg\n")
    commit.seal(folder, "resources", ["vocab.txt", "target_map.txt"])
    assert model.refresh()
    model.close()
    assert model.facts.labels == ["pos", "neg"]


def test_an_export_that_is_replaced_takes_over(run, tmp_path):
    opened = []

    def written(network):
        (tmp_path / "model.onnx").write_bytes(network)
        (tmp_path / export_folder.FILE).write_text("{}")
        commit.seal(tmp_path, export_folder.SET, ["model.onnx", export_folder.FILE])

    def open_run(folder, *, threads):
        opened.append((Path(folder) / "model.onnx").read_bytes())
        return load_run(run, threads=threads)

    written(b"first")
    model = Model("tiny", str(tmp_path), open_run, Sizes(threads=1), Counts(), cores=1)
    assert not model.refresh()
    written(b"later")
    assert model.refresh()
    (tmp_path / "export.manifest.json").rename(tmp_path / "hidden")  # as while a folder is replaced
    assert not model.refresh()
    model.close()
    assert opened == [b"first", b"later"]


def test_hostile_requests_neither_end_the_server_nor_get_a_5xx(serving):
    pytest.importorskip("schemathesis")
    from benchmarks.hostile import attack

    statuses = attack(serving.address, 400, seed=7)
    assert {200, 400, 404, 405, 422} <= statuses.keys()
    assert max(statuses) < 500
    assert ask(f"{serving.address}/predict", {"text": "good"})[0] == 200


@pytest.mark.parametrize(("copies", "cores", "expected"), [(None, 4, [2, 2]), (2, 3, [1, 1]), (1, 4, [None])])
def test_copies_of_a_model_share_the_cores(run, copies, cores, expected):
    asked = []

    def opened(folder, *, threads):
        asked.append(threads)
        return load_run(folder, threads=threads)

    Model("tiny", str(run), opened, Sizes(threads=copies), Counts(), cores=cores).close()
    assert asked == expected
