"""Files in ten shapes, each without a config: `x-run` takes them for what they are, and writes configs that are read.

What becomes of one of them from there on is in tests/commands/test_first_run.py.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import openpyxl
import pytest

from xdpx.commands.first_run import init, look, read_words
from xdpx.config.loading import load

CHANCE = random.Random(7)
WORDS = ["the", "a", "food", "place", "was", "very", "not", "quite", "and", "we", "they", "came", "back", "with"]
TEXTS = [" ".join(CHANCE.choices(WORDS, k=8)) + f" on day {index}" for index in range(120)]
OTHERS = [" ".join(CHANCE.choices(WORDS, k=6)) + f" in week {index}" for index in range(120)]
LABELS = [("good", "bad")[index % 2] for index in range(120)]
CHINESE = [f"这家酒店很好，服务员也很热情，我们第{index}次来了" for index in range(120)]


def cut(rows: Iterable[Sequence[str]], header: Sequence[str] = (), encoding: str = "utf-8", **style: object) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, **style).writerows([header, *rows] if header else rows)  # type: ignore[arg-type]
    return text.getvalue().encode(encoding)


def workbook() -> bytes:
    book, data = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["notes"])
    book.active.append(["made by hand"])
    sheet = book.create_sheet("data")
    for row in [("comment", "stars"), *zip(TEXTS, [index % 5 + 1 for index in range(120)], strict=True)]:
        sheet.append(row)
    book.save(data)
    return data.getvalue()


def sentences() -> bytes:
    tagged = [[(word, "B-TIME" if word == "day" else "O") for word in text.split()] for text in TEXTS]
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in tagged).encode()


def objects() -> bytes:
    rows = zip(range(120), TEXTS, LABELS, strict=True)
    lines = (json.dumps({"id": index, "text": text, "label": label}) for index, text, label in rows)
    return gzip.compress("\n".join(lines).encode())


SEVERAL = [("sport", "news,sport", "news", "news,money", "money")[index % 5] for index in range(120)]
FILES: dict[str, tuple[Callable[[], bytes], str, list[str]]] = {
    "header.csv": (lambda: cut(zip(TEXTS, LABELS, strict=True), ["review", "verdict"]), "class", [TEXTS[0]]),
    "none.tsv": (lambda: cut(zip(TEXTS, LABELS, strict=True), delimiter="\t"), "class", [TEXTS[0]]),
    "quoted.csv": (lambda: cut(((f'{text}, "so"\nwe said', label) for text, label in zip(TEXTS, LABELS, strict=True))),
                   "class", [f'{TEXTS[0]}, "so"\nwe said']),
    "first.csv": (lambda: cut(zip(LABELS, TEXTS, strict=True)), "class", [TEXTS[0]]),
    "gb.csv": (lambda: cut(zip(LABELS, CHINESE, strict=True), ["标签", "评论"], "gb18030"), "class", [CHINESE[0]]),
    "rows.jsonl.gz": (objects, "class", [TEXTS[0]]),
    "book.xlsx": (workbook, "class", [TEXTS[0]]),
    "pairs.csv": (lambda: cut(zip(TEXTS, OTHERS, LABELS, strict=True), ["sentence1", "sentence2", "label"]),
                  "class", [TEXTS[0], OTHERS[0]]),
    "several.csv": (lambda: cut(zip(TEXTS, SEVERAL, strict=True), ["text", "topics"]), "several", [TEXTS[0]]),
    "tags.txt": (sentences, "tags", [TEXTS[0]]),
    "three.csv": (lambda: cut(zip((f"r{index}" for index in range(120)), TEXTS, LABELS, strict=True)),
                  "class", [TEXTS[0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_taken_for_what_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, task, texts = FILES[name]
    (tmp_path / name).write_bytes(data())
    found = look(read_words("x-run", [name]))
    rows = [row for split in found.rows.values() for row in split]
    assert (found.columns.task, len(rows)) == (task, 120)
    assert 96 <= len(found.rows["train"]) <= 100
    assert texts in [row[:-1] for row in rows]
    assert init([name, "save_dir=out"]) == 0
    (run,) = load("out/prepro", "x-prepro")
    assert run.picks["", "tokenizer"] == ("space" if task == "tags" else "char_zh")
