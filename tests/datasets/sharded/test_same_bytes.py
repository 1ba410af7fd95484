"""Tasks, in any order and number, leave the bytes that one process leaves, for every kind of raw file."""

from __future__ import annotations

import gzip
import json
import lzma
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import nightly
from xdpx.commands.prepro import Prepro
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.loaders.parsers import base, files
from xdpx.utils import io

WORDS = {"parser": "csv", "loader": "single", "tokenizer": "space", "processor": "single", "max_len": 5}
ROWS = [f"w{n % 7} w{n % 3} v{n}\t{'ab'[n % 2]}" for n in range(23)]
Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 48)
    monkeypatch.setattr(base, "BLOCK_ROWS", 4)


def prepro(folder: str, **values: Any) -> None:
    known = {**WORDS, "data_source": f"{folder}/raw", "data_dir": f"{folder}/data", "data_files": "*", **values}
    run = resolve(known, "x-prepro", source="test")
    faults = Prepro(run).check()
    if faults:
        raise ConfigError("test", faults)
    Prepro(run).run()


def left(folder: str) -> dict[str, Any]:
    """Return what lies in a data_dir: of manifests what does not tell when and by whom they were written."""
    found: dict[str, Any] = {}
    for name in io.listdir(f"{folder}/data", recursive=True):
        with io.open(f"{folder}/data/{name}", "rb") as file:
            found[name] = file.read()
        if name.endswith(".manifest.json"):
            body = json.loads(found[name])
            body["facts"].get("source", {}).pop("read", None)
            found[name] = body["files"], body["facts"]
    found.pop("log.txt")
    return found


def same(folder: str, raw: Files, *, counts: tuple[int, ...] = (3,), **values: Any) -> dict[str, Any]:
    for name, data in raw.items():
        with io.open(f"{folder}/raw/{name}", "wb") as file:
            file.write(data)
    prepro(folder, **values)
    whole = left(folder)
    for count in counts:
        io.rmtree(f"{folder}/data")
        for index in reversed(range(count)):
            prepro(folder, **values, num_shards=count, shard_index=index)
        assert left(folder) == whole
    return whole


def text(rows: list[str], end: str = "\n") -> bytes:
    return "".join(f"{row}{end}" for row in rows).encode()


def as_json(rows: list[str]) -> list[dict[str, str]]:
    return [dict(zip(("text", "label"), row.split("\t"), strict=True)) for row in rows]


QUOTED = "".join(f'"w{n}, ""said""\nmore {n % 4}",{"ab"[n % 2]}\n' for n in range(13))
TAGGED = "".join(f"w{n}\tO\nXdpx\tB-ORG\n\n" for n in range(11)).encode()
LONG = [f"sentence {n} of some words" if n % 5 else "" for n in range(40)]
CASES: dict[str, tuple[Files, dict[str, Any]]] = {
    "lines end as they like": (
        {"train.tsv": b"\xef\xbb\xbf" + text(ROWS, "\r\n"), "dev.tsv": text(ROWS)[:-1], "test.tsv": text(ROWS[:2])},
        {},
    ),
    "duplicates": ({"train.tsv": text(ROWS + ROWS[:9] + ROWS[3:6])}, {"remove_duplicate": True}),
    "bad lines": (
        {"train.tsv": text(ROWS[:5]) + b"\xff\tx\nno label\n\na\tb\tc\td\n" + text(ROWS[5:]) + b"again\n"},
        {"skip_bad_lines": True},
    ),
    "a header": (
        {"train.tsv": text(["about", "text\tmore\tlabel", *(row.replace("\t", "\tz\t") for row in ROWS)])},
        {"start_line": 1, "fields": ["text", "label"]},
    ),
    "quotes": ({"train.csv": QUOTED.encode()}, {"delimiter": ","}),
    "compressed": ({"train.tsv.gz": gzip.compress(text(ROWS), mtime=0), "dev.tsv.xz": lzma.compress(text(ROWS))}, {}),
    "another encoding": (
        {"train.tsv": "".join(f"好 词{n}\t中\n" for n in range(19)).encode("gbk")},
        {"encoding": "gbk"},
    ),
    "jsonl": (
        {"train.jsonl": text([json.dumps(row) for row in as_json(ROWS)])},
        {"parser": "jsonl", "fields": ["text", "label"]},
    ),
    "json": ({"train.json": json.dumps(as_json(ROWS)).encode()}, {"parser": "json", "fields": ["text", "label"]}),
    "numbers": ({"train.tsv": text([f"a {n}\t{n / 4}" for n in range(9)])}, {"target_type": "number"}),
    "several labels": (
        {"train.tsv": text([f"a {n}\t{'x' * (n % 2)},{'y' * (n % 3 == 0)}" for n in range(9)])},
        {"label_separator": ","},
    ),
    "a corpus": (
        {"train.txt": text(LONG)},
        {"loader": "corpus", "parser": "none", "processor": "bert_lm", "max_len": 12, "tokenizer": "space"},
    ),
    "a corpus without duplicates": (
        {"train.txt": text(LONG + LONG)},
        {
            "loader": "corpus", "parser": "none", "processor": "bert_lm", "max_len": 12, "tokenizer": "space",
            "remove_duplicate": True, "break_mode": "complete_doc",
        },
    ),
    "sentences": (
        {"train.txt": TAGGED},
        {"parser": "conll", "loader": "tagged", "processor": "bert_token", "max_len": 9},
    ),
    "limits of words": ({"train.tsv": text(ROWS), "dev.tsv": text(ROWS[:3])}, {"threshold": 2, "nwords": 6}),
    "one sample": ({"train.tsv": b"a b\tx"}, {}),
}  # fmt: skip


MANY = {"lines end as they like", "bad lines", "a corpus", "one sample"}
"""Cases of eight tasks, more than there are rows or blocks."""


@pytest.mark.parametrize("name", CASES)
def test_tasks_leave_what_one_process_leaves(name: str, tmp_path: Path) -> None:
    raw, values = CASES[name]
    same(str(tmp_path), raw, counts=(8,) if name in MANY else (3,), **values)


def test_a_table_is_taken_by_one_task(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "reviews.db")
    connection.execute("CREATE TABLE train (text TEXT, label TEXT)")
    connection.executemany("INSERT INTO train VALUES (?, ?)", [row.split("\t") for row in ROWS])
    connection.commit()
    connection.close()
    source = f"sqlite:///{tmp_path}/reviews.db"
    same(str(tmp_path), {}, data_source=source, data_files="train", parser="table", order_by=["text"])


def test_columns_are_shared_too(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "raw").mkdir()
    parquet.write_table(arrow.Table.from_pylist(as_json(ROWS)), str(tmp_path / "raw" / "train.parquet"))
    same(str(tmp_path), {}, counts=(3,), parser="parquet")


@nightly("test_tasks_leave_what_one_process_leaves")
def test_tasks_may_share_an_object_store(s3_root: str) -> None:
    same(s3_root, {"train.tsv": text(ROWS)}, counts=(2,))


def test_lines_are_joined_only_to_tell_where_they_stand(tmp_path: Path) -> None:
    raw = {"train.tsv": text(ROWS + ROWS[:2]), "dev.tsv": text(["w1 w2\ta", *ROWS[-3:]])}
    found = json.loads(same(str(tmp_path), raw, counts=(5,))["findings.json"])
    assert any("train.tsv:21" in each["problem"] for each in found["findings"])


def test_another_order_of_tasks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train.tsv").write_bytes(text(ROWS))
    prepro(str(tmp_path))
    whole = left(str(tmp_path))
    io.rmtree(str(tmp_path / "data"))
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "3")
    for index in (1, 0, 2):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(index))
        prepro(str(tmp_path), num_shards=0)
    assert left(str(tmp_path)) == whole
