"""Nothing lies on this machine: the whole road on an object store, killed on the way; in memory; from the web."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import nightly
from xdpx.run import main
from xdpx.utils import io

ROWS = {
    "train.tsv": [f"{'good' if row % 3 else 'bad'} film {row % 7}\t{'pos' if row % 3 else 'neg'}" for row in range(64)],
    "dev.tsv": ["good film\tpos", "bad film\tneg", "good\tpos", "bad\tneg"],
    "unlabelled.tsv": ["good film 1", "bad film 2", "film"],
}


def configs(root: str, raw: str) -> dict[str, dict[str, Any]]:
    """Return the configs of the road, by command: every path in them is below `root`, raw texts are in `raw`."""
    return {
        "x-prepro": {
            "data_source": raw, "data_files": {"train.tsv": "train", "dev.tsv": "dev"}, "data_dir": f"{root}/data",
            "loader": "single", "processor": "single", "tokenizer": "space", "max_len": 4,
        },
        "x-train": {
            "__parent__": f"{root}/data/meta", "data_dir": f"{root}/data", "save_dir": f"{root}/run",
            "model": "cls_cnn", "embedding_dim": 4, "hidden_size": 8, "loss": "cross_entropy", "learning_rate": 0.01,
            "batch_size": 8, "max_update": 4, "eval_interval": 2, "log_interval": 1, "major_metric": "acc",
        },
        "x-eval": {"save_dir": f"{root}/run", "valid_subset": "dev", "save_to_file": f"{root}/scores.tsv"},
        "x-pred": {
            "save_dir": f"{root}/run", "predict_file_map": {f"{raw}/unlabelled.tsv": f"{root}/predictions.tsv"},
        },
    }  # fmt: skip


def put_raw(folder: str) -> str:
    """Write the raw files and return their folder."""
    for name, rows in ROWS.items():
        with io.open(f"{folder}/{name}", "w") as file:
            file.write("".join(f"{row}\n" for row in rows))
    return folder


def put_configs(folder: str, road: dict[str, dict[str, Any]]) -> list[str]:
    """Write one config per command and return the words of the line that runs them all."""
    words = []
    for command, keys in road.items():
        with io.open(f"{folder}/{command}.json", "w") as file:
            json.dump(keys, file)
        words += [command, f"{folder}/{command}.json"]
    return words


def predicted(root: str) -> list[str]:
    with io.open(f"{root}/predictions.tsv") as file:
        return [line.split("\t")[0] for line in file][1:]


def test_the_whole_road_lies_on_a_store_configs_and_all(s3_root: str, figures: None) -> None:
    line = put_configs(f"{s3_root}/configs", configs(s3_root, put_raw(f"{s3_root}/raw")))
    assert main(line) == 0
    assert predicted(s3_root) == ROWS["unlabelled.tsv"]
    assert {"args.py", "checkpoint-4.pt", "log.txt", "snapshot.zip", "train.log.tsv", "valid.log.tsv"} <= set(
        io.listdir(f"{s3_root}/run")
    )
    assert io.isfile(f"{s3_root}/run/plots/acc.png")
    assert main(["x-script", "clean_checkpoints", s3_root]) == 0
    assert main(["x-script", "verify", s3_root]) == 0


@nightly("tests/faults/test_commit_kills.py::test_a_kill_at_any_request_leaves_a_whole_set_on_an_object_store")
def test_a_run_killed_on_a_store_ends_as_if_nothing_had_been(s3_root: str) -> None:
    road = configs(s3_root, put_raw(f"{s3_root}/raw"))
    road["x-train"] |= {"max_update": 8, "eval_interval": -1, "save_interval": 2, "resume": "auto"}
    assert main(put_configs(f"{s3_root}/configs", {name: road[name] for name in ("x-prepro", "x-train")})) == 0
    road["x-train"]["save_dir"] = killed = f"{s3_root}/killed"
    line = [sys.executable, "-m", "xdpx.run", *put_configs(f"{s3_root}/configs", {"x-train": road["x-train"]})]
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not io.exists(f"{killed}/checkpoint-4.pts.manifest.json"):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert main(line[3:]) == 0
    assert io.md5(f"{killed}/checkpoint-8.pt") == io.md5(f"{s3_root}/run/checkpoint-8.pt")


def test_commands_on_one_line_hand_on_what_is_only_in_memory(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    root = f"memory://{request.node.name}"
    assert main(put_configs(str(tmp_path), configs(root, put_raw(f"{root}/raw")))) == 0
    assert predicted(root) == ROWS["unlabelled.tsv"]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The address of a web server that serves `tmp_path / "web"`."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(tmp_path / "web")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("data_files", [{"train.tsv": "train", "dev.tsv": "dev"}, "*n.tsv"])
def test_raw_texts_words_and_labels_may_come_from_the_web(web: str, tmp_path: Path, data_files: Any) -> None:
    put_raw(str(tmp_path / "web/raw"))
    (tmp_path / "web/vocab.txt").write_text("[PAD]\n[UNK]\ngood\nbad\nfilm\n")
    (tmp_path / "web/labels.txt").write_text("neg\npos\n")
    road = {"x-prepro": configs(str(tmp_path), f"{web}/raw")["x-prepro"]}
    road["x-prepro"] |= {"data_files": data_files, "vocab_file": f"{web}/vocab.txt"}
    road["x-prepro"] |= {"target_map_file": f"{web}/labels.txt"}
    assert main(put_configs(str(tmp_path), road)) == 0
    assert (tmp_path / "data/train.pt").stat().st_size > 0
    assert (tmp_path / "data/target_map.txt").read_text() == "neg\npos\n"
