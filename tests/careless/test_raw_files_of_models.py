"""Raw files of x-pred and x-eval in another format than that of training: read rightly, or refused with what to do."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xdpx.run import main

ROWS = [("good film", "pos"), ("bad plot", "neg"), ("very good , tasty", "pos"), ("cold food", "neg"), ("fine", "pos")]
Predict = Callable[..., list[list[str]]]


def words(**keys: Any) -> list[str]:
    return [f"{key}={json.dumps(value, default=str)}" for key, value in keys.items()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, of a model trained on a TSV without a header."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "raw").mkdir()
    for split in ("train", "dev"):
        lines = [f"{text} {split}\t{label}\n" for text, label in ROWS * (4 if split == "train" else 1)]
        (folder / "raw" / f"{split}.tsv").write_text("".join(lines))
    prepro = {"loader": "single", "processor": "single", "tokenizer": "space", "max_len": 16, "data_files": "*.tsv"}
    places = {"data_source": folder / "raw", "data_dir": folder / "data"}
    assert main(["x-prepro", *words(**places, **prepro)]) == 0
    shape = {"model": "cls_cnn", "embedding_dim": 4, "hidden_size": 4, "loss": "cross_entropy", "cuda": False}
    steps = {"batch_size": 4, "max_update": 2, "eval_interval": 2, "learning_rate": 0.1, "valid_subset": "dev"}
    steps |= {"major_metric": "acc"}
    keys = {"__parent__": f"{folder}/data/meta", "data_dir": folder / "data", "save_dir": folder / "run"}
    (folder / "train.hjson").write_text(json.dumps({**keys, **shape, **steps, "max_epoch": 1}, default=str))
    assert main(["x-train", str(folder / "train.hjson")]) == 0
    return folder


@pytest.fixture
def predict(trained: Path, tmp_path: Path) -> Predict:
    """Write a raw file, predict it, and return the rows of the answer; [] where it is refused."""

    def run(name: str, content: str, *, code: int = 0, **keys: Any) -> list[list[str]]:
        (tmp_path / name).write_text(content, encoding="utf-8")
        wanted = {"save_dir": trained / "run", "predict_file_map": {str(tmp_path / name): str(tmp_path / "out")}}
        assert main(["x-pred", *words(**wanted, **keys)]) == code
        if code:
            assert not (tmp_path / "out").exists()
            return []
        with (tmp_path / "out").open(newline="") as file:
            return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]

    return run


def quoted(rows: list[tuple[str, str]], *, header: str = "") -> str:
    return header + "".join(f'"{text}",{label}\n' for text, label in rows)


def test_a_csv_without_a_header_is_read_as_its_ending_says(predict: Predict) -> None:
    as_tsv = predict("a.tsv", "".join(f"{text}\t{label}\n" for text, label in ROWS))
    assert predict("a.csv", quoted(ROWS)) == as_tsv
    assert [row[:2] for row in as_tsv] == [list(row) for row in ROWS]


def test_a_csv_with_a_header_is_refused_until_its_columns_are_named(
    predict: Predict, capsys: pytest.CaptureFixture[str]
) -> None:
    content = quoted(ROWS, header="review,label\n")
    predict("a.csv", content, code=2)
    told = capsys.readouterr().err
    assert "a.csv:1: the first row looks like the names of columns: 'review', 'label'" in told
    assert 'fields: ["review", "label"]' in told
    how = {"delimiter": ",", "fields": ["review", "label"]}
    assert [row[:2] for row in predict("a.csv", content, extra_config=how)] == [list(row) for row in ROWS]


def test_a_csv_of_more_columns_is_refused_with_what_to_give(
    predict: Predict, capsys: pytest.CaptureFixture[str]
) -> None:
    predict(
        "a.csv",
        "id,review,label\n" + "".join(f'{n},"{text}",{label}\n' for n, (text, label) in enumerate(ROWS)),
        code=2,
    )
    assert 'extra_config: {parser: "csv", delimiter: ",", fields: [...]}' in capsys.readouterr().err


def test_a_csv_that_holds_tabs_is_read_as_training_did(predict: Predict) -> None:
    rows = predict("a.csv", "".join(f"{text}\t{label}\n" for text, label in ROWS))
    assert [row[:2] for row in rows] == [list(row) for row in ROWS]


def test_a_csv_of_one_plain_column_is_read_as_text(predict: Predict) -> None:
    assert [row[0] for row in predict("a.csv", "good film\nbad plot\n")] == ["good film", "bad plot"]


def test_json_lines_are_refused_until_their_fields_are_named(
    predict: Predict, capsys: pytest.CaptureFixture[str]
) -> None:
    content = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
    for name, told in (("a.jsonl", 'parser: "jsonl", fields: [...]'), ("a.txt", "parser: jsonl, fields: [...]")):
        predict(name, content, code=2)
        assert told in capsys.readouterr().err
    how = {"parser": "jsonl", "fields": ["text", "label"]}
    assert [row[:2] for row in predict("a.jsonl", content, extra_config=how)] == [list(row) for row in ROWS]


@pytest.mark.parametrize("header", ["text\tlabel", "what was said\tlabel", "text", "review\tpred"])
def test_a_header_of_a_tsv_is_refused_and_not_predicted(
    predict: Predict, capsys: pytest.CaptureFixture[str], header: str
) -> None:
    cut = len(header.split("\t"))
    content = header + "\n" + "".join("\t".join(row[:cut]) + "\n" for row in ROWS)
    predict("a.tsv", content, code=2)
    assert "a.tsv:1: the first row looks like the names of columns" in capsys.readouterr().err
    assert len(predict("a.tsv", content, extra_config={"start_line": 1})) == len(ROWS)


def test_pairs_for_a_model_of_single_texts_are_refused(predict: Predict, capsys: pytest.CaptureFixture[str]) -> None:
    predict("a.tsv", "".join(f"{text}\twhat is number {n}\n" for n, (text, _) in enumerate(ROWS)), code=2)
    assert "the last column, read as a label, has no label of training" in capsys.readouterr().err


def test_labels_that_training_never_saw_are_no_fault(predict: Predict) -> None:
    rows = predict("a.tsv", "".join(f"{text}\t{'mixed' if label == 'pos' else 'neg'}\n" for text, label in ROWS))
    assert [row[1] for row in rows] == ["mixed", "neg", "mixed", "neg", "mixed"]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ('"{}"\t"{}"\n', "quotes wrap every cell"),
        ("{}\tnot {}\n", "no label of the first"),
        ("dÃ©jÃ  {}\t{}\n", "wrong enc"),
    ],
)
def test_what_training_had_otherwise_is_predicted_and_told_once(
    predict: Predict, capsys: pytest.CaptureFixture[str], form: str, told: str
) -> None:
    assert predict("a.tsv", "".join(form.format(*row) for row in ROWS))
    assert capsys.readouterr().err.count(told) == 1


def test_texts_without_labels_may_all_end_in_a_few_words(predict: Predict) -> None:
    texts = [f"a very good {word}" for word in ("film", "plot")] * 8
    assert [row[0] for row in predict("a.tsv", "".join(f"{text}\n" for text in texts))] == texts


def test_labels_behind_a_blank_are_no_texts(predict: Predict, capsys: pytest.CaptureFixture[str]) -> None:
    predict("a.tsv", "".join(f"{text} {label}\n" for text, label in ROWS * 4), code=2)
    assert "a.tsv:1: no line has a label, but each ends in a blank and one of neg, pos" in capsys.readouterr().err


def test_the_same_holds_for_scoring(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(quoted(ROWS))
    (tmp_path / "a.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    paths = [str(tmp_path / "a.csv"), str(tmp_path / "a.tsv")]
    assert main(["x-eval", *words(save_dir=trained / "run", valid_subset=paths)]) == 0
    _, *scores = (line.split("\t")[2:] for line in capsys.readouterr().out.splitlines())
    assert scores[0] == scores[1]
    (tmp_path / "b.csv").write_text(quoted(ROWS, header="review,label\n"))
    assert main(["x-eval", *words(save_dir=trained / "run", valid_subset=str(tmp_path / "b.csv"))]) == 2


def test_training_without_labels_ends_before_it_begins(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train.tsv").write_text("good\nbad\nfine\n" * 9)
    (tmp_path / "raw" / "dev.tsv").write_text("good\tpos\nbad\tneg\n")
    places = {"data_source": tmp_path / "raw", "data_dir": tmp_path / "data", "data_files": "*.tsv"}
    kind = {"loader": "single", "processor": "single", "tokenizer": "space", "max_len": 16}
    assert main(["x-prepro", *words(**places, **kind, ignore_findings=["no_labels"])]) == 0
    there = {"data_dir": tmp_path / "data", "save_dir": tmp_path / "run", "__parent__": f"{tmp_path}/data/meta"}
    config = {**json.loads((trained / "train.hjson").read_text()), **there}
    (tmp_path / "train.hjson").write_text(json.dumps(config, default=str))
    assert main(["x-train", str(tmp_path / "train.hjson")]) == 2
    told = capsys.readouterr().err
    assert "train_subset: no sample of 'train' has a label, but loss 'cross_entropy' needs them" in told
    assert "bug in xdpx" not in told
