"""x-check as it is typed: exit codes, its text, its JSON and its page; configs of x-prepro and of x-train."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.datasets.examining.planted import PAIRS, Corpus, clean, clean_pairs, in_words
from xdpx.run import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, corpus: Corpus) -> str:
    values = corpus.write(folder)
    (folder / "prepro.json").write_text(json.dumps(values), encoding="utf-8")
    return "prepro.json"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["x-check", *words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_of_clean_data_nothing_is_told_and_nothing_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(folder, Corpus(clean()))
    before = sorted(folder.rglob("*"))
    assert main(["x-check", config]) == 0
    out, err = capsys.readouterr()
    assert "nothing found in 920 rows" in out
    assert "train" in out
    assert err == ""
    assert sorted(folder.rglob("*")) == before


def test_what_would_stop_x_prepro_ends_with_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = clean()
    splits["train"].insert(0, ("text", "label"))
    assert main(["x-check", write(folder, Corpus(splits))]) == 2
    out = capsys.readouterr().out
    assert "FAULT [header]" in out
    assert "raw/train.tsv:1" in out
    assert "start_line: 1" in out
    assert main(["x-check", "prepro.json", 'ignore_findings=["header", "imbalance"]']) == 0


def test_json_has_each_finding_with_the_rows_that_show_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = clean()
    splits["train"] += [(in_words(text, "tavoli"), label) for text, label in splits["test"][:12]]
    found = told(capsys, write(folder, Corpus(splits)))
    (leak,) = (each for each in found["findings"] if each["code"] == "near_leakage")
    assert leak["severity"] == "warning"
    assert "the score is too good" in leak["why"]
    assert leak["examples"][0]["place"].endswith("raw/test.tsv:1")
    assert "raw/train.tsv:601" in leak["examples"][0]["said"]
    assert found["exit_code"] == 0
    assert {each["name"]: each["rows"] for each in found["splits"]} == {"train": 612, "dev": 160, "test": 160}
    assert found["labels"] == {"neg": 466, "pos": 466}


def test_wrong_labels_are_listed_for_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = clean()
    flipped = list(range(3, 600, 19))
    for number in flipped:
        text, label = splits["train"][number]
        splits["train"][number] = (text, "pos" if label == "neg" else "neg")
    found = told(capsys, write(folder, Corpus(splits)))
    lines = {int(each["place"].rpartition(":")[2]) - 1 for each in found["suspects"] if "train" in each["place"]}
    assert len(lines & set(flipped)) >= 0.7 * len(flipped)
    assert len(lines - set(flipped)) <= 3
    assert [each["code"] for each in found["findings"]] == ["label_noise"]


def test_the_page_holds_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = clean()
    splits["train"][5] = ("<br> a & b <script>alert(1)</script> tavoli vino", "pos")
    assert main(["x-check", write(folder, Corpus(splits)), "page=out/check.html"]) == 0
    page = (folder / "out" / "check.html").read_text(encoding="utf-8")
    assert "note: markup" in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page


def test_compressed_json_and_pairs_are_read_as_x_prepro_reads_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = clean_pairs()
    keys = {"parser": "jsonl", "fields": ["a", "b", "y"], "data_files": {"train.jsonl.gz": "train"}, **PAIRS}
    config = write(folder, Corpus(splits, keys))
    rows = [json.dumps(dict(zip("aby", row, strict=True))) for row in splits["train"]]
    (folder / "raw" / "train.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    assert told(capsys, config)["rows"] == 600


def test_a_config_of_x_train_leads_to_its_raw_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = clean()
    splits["train"][9] = ("caf\ufffd", "pos")
    config = write(folder, Corpus(splits, {"check_max_len": True}))
    assert main(["x-prepro", config]) == 0
    train = {
        "__parent__": "data/meta", "data_dir": "data", "save_dir": "run", "model": "bow", "loss": "cross_entropy",
        "max_epoch": 2, "batch_size": 50, "learning_rate": 0.01, "cuda": False, "major_metric": "acc",
        "eval_interval": 10, "embedding_dim": 8,
    }  # fmt: skip
    (folder / "train.json").write_text(json.dumps(train), encoding="utf-8")
    capsys.readouterr()
    found = told(capsys, "train.json", "measure=false")
    assert [each["code"] for each in found["findings"]] == ["lost_characters"]
    assert found["outlook"] is None
    assert not (folder / "run").exists()
    for file in (folder / "raw").iterdir():
        file.unlink()
    gone = told(capsys, "train.json", "measure=false")
    assert [each["code"] for each in gone["findings"]] == ["path"]
    (folder / "raw").rmdir()
    [only] = told(capsys, "train.json", "measure=false")["findings"]
    assert only["problem"].count("there is no folder") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prepro.json", "rows=0"], "rows: is '0'"),
        (["prepro.json", "--rowz"], "no such flag"),
        (["prepro.json", "other.json"], "takes one config"),
        (["prepro.json", "measure=maybe"], "measure: is 'maybe'"),
        (["prepro.json", "page=raw"], "page"),
        (["nowhere.json"], "nowhere.json"),
        (["prepro.json", "max_lenn=3"], "max_len"),
    ],
)
def test_what_is_typed_wrongly_is_told(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, Corpus(clean()))
    assert main(["x-check", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_a_fault(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("")
    found = told(capsys, write(folder, Corpus(clean(), {"data_dir": "file/data"})))
    assert found["exit_code"] == 2


def test_of_several_runs_each_is_looked_at_and_what_they_share_is_told_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = clean()
    splits["train"] += splits["train"][:30]
    values = json.loads((folder / write(folder, Corpus(splits))).read_text())
    runs = {"out/whole": 128, "out/cut": 4, "out/same": 4}
    lengths = [{"max_len": length, "data_dir": place} for place, length in runs.items()]
    values = {key: value for key, value in values.items() if key not in {"max_len", "data_dir"}}
    (folder / "loop.json").write_text(json.dumps({"__parent__": [lengths], **values}), encoding="utf-8")
    found = told(capsys, "loop.json")["findings"]
    assert [each["code"] for each in found].count("duplicates") == 1
    cut = [each["place"] for each in found if each["code"] == "cut_tokens"]
    assert cut
    assert all(place.startswith("run 2 of 3: ") for place in cut), "the third reads the same data in the same way"


def test_a_file_in_another_encoding_is_told_with_its_encoding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = {name: [(f"{text} caf\u00e9 na\u00efve", label) for text, label in rows] for name, rows in clean().items()}
    config = write(folder, Corpus(splits))
    for file in (folder / "raw").iterdir():
        file.write_bytes(file.read_text(encoding="utf-8").encode("latin-1"))
    (refused,) = told(capsys, config)["findings"]
    assert "contains no usable line: line 1: is not UTF-8 text" in refused["problem"]
    assert "encoding: cp1252" in refused["remedy"]


def test_a_dev_split_without_labels_is_told_and_a_test_split_is_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write(folder, Corpus(clean()))
    for name in ("dev", "test"):
        file = folder / "raw" / f"{name}.tsv"
        rows = file.read_text(encoding="utf-8").splitlines()
        file.write_text("".join(row.rpartition("\t")[0] + "\n" for row in rows), encoding="utf-8")
    found = told(capsys, config)["findings"]
    assert [(each["code"], each["severity"], each["place"]) for each in found] == [("no_labels", "warning", "dev")]
