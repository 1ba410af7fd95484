"""`x-run FILE`: one command from a file to scores; its configs are the user's; what cannot be known is asked."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.loading import load
from xdpx.run import main


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write 160 reviews, of which a word tells the label, and go there."""
    monkeypatch.chdir(tmp_path)
    chance = random.Random(1)
    rows = [(f"{word} {chance.choice(['food', 'place'])}, 很好的 {index}", label)
            for index in range(80) for word, label in (("splendid", "good"), ("awful", "bad"))]  # fmt: skip
    with (tmp_path / "reviews.csv").open("w", newline="", encoding="gb18030") as file:
        csv.writer(file).writerows([("review", "verdict"), *rows])
    return tmp_path


def test_one_command_goes_from_a_file_to_scores_and_again_repeats_nothing(
    reviews: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "x-run",
        "reviews.csv",
        "max_epoch=4",
        "embedding_dim=16",
        "hidden_size=16",
        "learning_rate=0.02",
        "--json",
    ]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["decisions"]["label"] == {"value": "'verdict'", "sure": "certain"}
    assert told["rows"] == {"train": 128, "dev": 16, "test": 16}
    assert told["scores"]["test"]["acc"] > 0.9
    assert told["majority"] == 0.5
    assert Path(told["page"]).read_text().startswith("<!doctype html>")
    predicted = (reviews / "out/reviews/predictions.tsv").read_text(encoding="utf-8").splitlines()
    assert len(predicted) == 17
    before = {path: path.stat().st_mtime_ns for path in (reviews / "out/reviews/run").glob("*.pt")}
    assert before
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == told
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_score_that_the_most_frequent_label_reaches_too_is_said_to_be_no_better(
    reviews: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["max_epoch=1", "embedding_dim=2", "hidden_size=2", "learning_rate=1e-9"]
    assert main(["x-run", "reviews.csv", *words]) == 0
    assert "no better than always predicting the most frequent label" in capsys.readouterr().out


def test_a_regression_that_is_no_better_than_the_mean_is_said_to_be_so(
    reviews: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"food {index % 7} was {index % 5}\t{index + 1000},5\n" for index in range(60))
    (reviews / "prices.tsv").write_text("text\tscore\n" + rows)
    words = ["max_epoch=1", "embedding_dim=2", "hidden_size=2", "learning_rate=1e-9"]
    assert main(["x-run", "prices.tsv", *words]) == 0
    assert "no better than always predicting the mean" in capsys.readouterr().out


def test_warnings_about_the_data_stand_beside_the_score(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (reviews / "mine").mkdir()
    rows = [f"{word} food {index}\t{label}\n" for index in range(20) for word, label in (("good", "a"), ("bad", "b"))]
    for split, share in (("train", rows), ("dev", rows[:9]), ("test", rows[:9])):
        (reviews / "mine" / f"{split}.tsv").write_text("".join(share))
    assert main(["x-run", "mine", "max_epoch=1", "embedding_dim=2", "hidden_size=2"]) == 0
    said = capsys.readouterr().out
    assert "\nwarning: test: 9 of 9 texts (100.00%) also occur in training" in said[said.index("held-out rows") :]


def test_x_init_writes_configs_that_are_read_and_trains_nothing(
    reviews: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["x-init", "reviews.csv", "save_dir=here", "max_len=32", "max_epoch=3"]) == 0
    said = capsys.readouterr().out
    assert "label     'verdict'  (certain)   [label=verdict]" in said
    assert "x-prepro here/prepro.hjson x-train here/train.hjson" in said
    (prepro,) = load("here/prepro", "x-prepro")
    assert prepro.values["max_len"] == 32
    assert "max_epoch: 3" in (reviews / "here/train.hjson").read_text()
    assert sorted(path.name for path in (reviews / "here").iterdir()) == [
        "eval.hjson", "predict.hjson", "prepro.hjson", "raw", "train.hjson",
    ]  # fmt: skip


def test_what_was_edited_is_not_written_over(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["x-init", "reviews.csv"]) == 0
    config = reviews / "out/reviews/train.hjson"
    config.write_text("mine")
    assert main(["x-init", "reviews.csv"]) == 2
    assert "edited by hand. Choose another folder: save_dir=..." in capsys.readouterr().err
    assert config.read_text() == "mine"


REFUSED = [
    (["x-run", "reviws.csv"], "Did you mean 'reviews.csv'?"),
    (["x-run", "reviews.csv", "label=verdct"], "Did you mean 'verdict'?"),
    (["x-run", "reviews.csv", "encoding=utf-8"], "It is likely gb18030"),
    (["x-run", "reviews.csv", "task=nubmer"], "Use one of class, number, several"),
    (["x-run", "reviews.csv", "test=0.9"], "at most 0.4"),
    (["x-run", "reviews.csv", "header=maybe"], "Use true or false"),
    (["x-run", "reviews.csv", "--fast"], "no such flag"),
    (["x-run"], ""),
    (["x-init", "reviews.csv", "other.csv"], "takes one file or folder"),
    (["x-train", "reviews.csv"], "holds data, not a config. Write: x-run reviews.csv"),
]


@pytest.mark.parametrize(("words", "answer"), REFUSED)
def test_a_mistake_is_answered_before_anything_is_written(
    reviews: Path, capsys: pytest.CaptureFixture[str], words: list[str], answer: str
) -> None:
    assert main(words) == (2 if answer else 0)
    captured = capsys.readouterr()
    assert answer in captured.err
    assert "Traceback" not in captured.err
    assert sorted(path.name for path in reviews.iterdir()) == ["reviews.csv"]


def test_a_key_that_no_command_takes_is_answered_by_the_check(
    reviews: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["x-init", "reviews.csv", "max_epok=3"]) == 2
    assert "max_epoch" in capsys.readouterr().err


def test_the_families_are_listed_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["x-init", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("families/cls_cnn ") and "convolutional" in line for line in lines)
    assert all(len(line) < 160 for line in lines)


def test_files_of_splits_are_taken_as_they_are(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (reviews / "reviews.csv").read_bytes()
    (reviews / "splits").mkdir()
    (reviews / "splits/train.csv").write_bytes(data)
    (reviews / "splits/test.csv").write_bytes(b"verdict,review\n" + b"good,a splendid one\nbad,an awful one\n" * 3)
    assert main(["x-init", "splits"]) == 0
    rows = [json.loads(line) for line in (reviews / "out/splits/raw/test.jsonl").read_text().splitlines()]
    assert rows[0] == {"text": "a splendid one", "label": "good"}
    assert "train / dev / test = 144 / 16 / 6" in capsys.readouterr().out


def test_labels_too_rare_to_be_scored_are_refused(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"text number {index}\tkind {index // 2}\n" for index in range(40)]
    (reviews / "rare.tsv").write_text("".join(rows))
    assert main(["x-init", "rare.tsv", "label=2", "text=1", "task=class"]) == 2
    assert "leaves no rows for dev and test" in capsys.readouterr().err


def test_a_folder_gives_its_name_to_the_results(reviews: Path) -> None:
    assert main(["x-init", "."]) == 0
    assert (reviews / "out" / reviews.name / "prepro.hjson").is_file()


def test_no_path_of_a_folder_beside_is_lost(reviews: Path) -> None:
    assert main(["x-init", "reviews.csv", "save_dir=../beside"]) == 0
    (run,) = load(str(reviews.parent / "beside/prepro"), "x-prepro")
    assert run.values["data_dir"] == str(reviews.parent / "beside/data")
    with pytest.raises(ConfigError, match="beside/data/meta"):
        load(str(reviews.parent / "beside/train"), "x-train")
