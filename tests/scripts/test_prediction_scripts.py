"""confusion_matrix and bce_threshold: what x-pred wrote, counted and judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score

from xdpx.commands.bce_threshold import rounded_down
from xdpx.commands.script import main
from xdpx.config.faults import ConfigError

RANDOM = np.random.default_rng(0)
LABELS = ["none", "sport", "art"]


@pytest.fixture
def predicted(tmp_path: Path) -> dict[str, str]:
    """Predictions of 60 rows, as x-pred writes them."""
    prob = RANDOM.random((60, 3)).round(3)
    target = np.where(RANDOM.random(60) < 0.6, prob.argmax(axis=1), RANDOM.integers(0, 3, 60))
    rows = [f"text {i}\t{LABELS[t].upper()}\t{LABELS[int(p.argmax())]}\t{p.tolist()}\t0.5" for i, (t, p) in enumerate(
        zip(target, prob, strict=True))]  # fmt: skip
    (tmp_path / "out.tsv").write_text("\n".join(["text\ttarget\tpred\tprob\ttarget_prob", *rows]) + "\n")
    (tmp_path / "target_map.txt").write_text("".join(f"{label}\n" for label in LABELS))
    return {"predict_file": str(tmp_path / "out.tsv"), "target_map_file": str(tmp_path / "target_map.txt")}


def read(path: str) -> tuple[Any, Any, Any]:
    rows = [line.split("\t") for line in Path(path).read_text().splitlines()[1:]]
    target = np.array([LABELS.index(row[1].lower()) for row in rows])
    return target, np.array([LABELS.index(row[2]) for row in rows]), np.array([json.loads(row[3]) for row in rows])


def call(name: str, folder: Path, **keys: Any) -> int:
    (folder / "script.json").write_text(json.dumps(keys))
    return main([name, str(folder / "script.json")])


def test_the_matrix_is_that_of_scikit_learn_printed_or_written(predicted, tmp_path: Path, capsys, figures) -> None:
    target, pred, _ = read(predicted["predict_file"])
    expected = confusion_matrix(target, pred).tolist()
    assert call("confusion_matrix", tmp_path, **predicted) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[2:] == [[label, *map(str, row)] for label, row in zip(LABELS, expected, strict=True)]
    assert call("confusion_matrix", tmp_path, **predicted, out_file=str(tmp_path / "table.csv")) == 0
    written = [line.split(",") for line in (tmp_path / "table.csv").read_text().splitlines()]
    assert written == [["", *LABELS], *printed[2:]]
    assert call("confusion_matrix", tmp_path, **predicted, out_file=str(tmp_path / "table.png")) == 0
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def test_the_file_with_predictions_may_be_the_first_word(predicted, tmp_path: Path, capsys) -> None:
    target, pred, _ = read(predicted["predict_file"])
    assert main(["confusion_matrix", predicted["predict_file"], "--target_map_file", predicted["target_map_file"]]) == 0
    with_map = capsys.readouterr().out
    assert main(["confusion_matrix", predicted["predict_file"]]) == 0  # its labels, by their names
    counts = confusion_matrix(np.array(LABELS)[target], np.array(LABELS)[pred])
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()[2:]] == counts.astype(str).tolist()
    assert main(["bce_threshold", predicted["predict_file"], f"target_map_file={predicted['target_map_file']}"]) == 0
    assert with_map.split()[:4] == ["target", *LABELS]


def test_other_columns_can_be_compared_and_absent_ones_are_refused(predicted, tmp_path: Path, capsys) -> None:
    assert call("confusion_matrix", tmp_path, **predicted, target_col_name="pred") == 0
    with pytest.raises(ConfigError, match=r"pred_col_name: there is no column 'prd'\. Did you mean 'pred'\?"):
        call("confusion_matrix", tmp_path, **predicted, pred_col_name="prd")
    with pytest.raises(ConfigError, match="target_col_name: contains 'text 0', which is not a label"):
        call("confusion_matrix", tmp_path, **predicted, target_col_name="text")


def test_words_win_over_the_config_and_dry_does_nothing(predicted, tmp_path: Path, capsys) -> None:
    words = [f"{key}={value}" for key, value in predicted.items()]
    assert main(["confusion_matrix", *words, f"out_file={tmp_path / 'x.csv'}", "--dry"]) == 0
    assert "pred_col_name" in capsys.readouterr().out
    assert not (tmp_path / "x.csv").exists()


def test_thresholds_are_within_their_bounds_and_better_than_none(predicted, tmp_path: Path, capsys) -> None:
    out = tmp_path / "threshold.hjson"
    assert call("bce_threshold", tmp_path, **predicted, out_file=str(out), min_threshold=0.3, max_threshold=0.9) == 0
    chosen = json.loads(out.read_text())["predict_threshold"]
    assert len(chosen) == 2
    assert all(0.3 <= each <= 0.9 for each in chosen)
    target, _, prob = read(predicted["predict_file"])
    for index, threshold in enumerate(chosen, 1):
        others = [f1_score(target == index, prob[:, index] >= at) for at in np.arange(0.3, 0.9, 0.01)]
        assert f1_score(target == index, prob[:, index] >= threshold) >= max(others) - 1e-9
    assert "precision_before" in capsys.readouterr().out


def test_rows_of_several_labels_have_a_threshold_for_each_class(predicted, tmp_path: Path, capsys) -> None:
    text = Path(predicted["predict_file"]).read_text().replace("SPORT", "sport, art").replace("NONE", "")
    Path(predicted["predict_file"]).write_text(text)
    assert call("bce_threshold", tmp_path, **predicted, label_separator=",") == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["predict_threshold"]) == 3


def of_several(predicted: dict[str, str], *, separator: str = ",") -> dict[str, str]:
    """Rewrite the file as x-pred writes rows of several labels, in a column `labels`; return the words for it."""
    path = Path(predicted["predict_file"])
    rows = ["text\tlabels\tpred\tprob\ttarget_prob"]
    for number, row in enumerate(line.split("\t") for line in path.read_text().splitlines()[1:]):
        there = [[0], [1], [2, 0], []][number % 4]
        shares = json.loads(row[3])
        labels = separator.join(LABELS[index] for index in there)
        rows.append(f"{row[0]}\t{labels}\tsport\t{shares}\t{[shares[index] for index in sorted(there)]}")
    path.write_text("\n".join(rows) + "\n")
    return predicted | {"target_col_name": "labels"}


def test_labels_in_another_order_than_the_probabilities_are_refused(predicted, tmp_path: Path, capsys) -> None:
    words = of_several(predicted)
    Path(words["target_map_file"]).write_text("none\nart\nsport\n")
    with pytest.raises(ConfigError, match="target_map_file: has 'art' on line 2, where 'prob' of .* another class"):
        call("bce_threshold", tmp_path, **words)


@pytest.mark.parametrize("separator", [",", ";"])
def test_several_labels_and_their_separator_are_known_by_what_x_pred_wrote(
    predicted, tmp_path: Path, capsys, separator: str
) -> None:
    words = of_several(predicted, separator=separator)
    with pytest.raises(
        ConfigError, match=r"no column 'target'\. If the labels are in 'labels': target_col_name=labels"
    ):
        call("bce_threshold", tmp_path, **predicted)
    assert call("bce_threshold", tmp_path, **words) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["predict_threshold"]) == 3
    path = Path(predicted["predict_file"])
    path.write_text("".join(line.rpartition("\t")[0] + "\n" for line in path.read_text().splitlines()))
    with pytest.raises(ConfigError, match="which is no label or several of them. Give the separator"):
        call("bce_threshold", tmp_path, **words)


def test_rows_that_have_one_of_several_labels_each_have_a_threshold_for_class_0_too(
    predicted, tmp_path, capsys
) -> None:
    words = of_several(predicted)
    path = Path(predicted["predict_file"])
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(row for number, row in enumerate(rows) if number % 4 < 2)]) + "\n")
    assert call("bce_threshold", tmp_path, **words) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["predict_threshold"]) == 3


def test_bounds_without_anything_between_are_refused(predicted, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"min_threshold .*: is 0\.9, above max_threshold 0\.5"):
        call("bce_threshold", tmp_path, **predicted, min_threshold=0.9, max_threshold=0.5)


@pytest.mark.parametrize("threshold", [0.99996, 0.5, 0.12345678, 0.40001])
def test_a_rounded_threshold_takes_the_same_rows_and_stays_above_the_least(threshold: float) -> None:
    scores = np.array([0.1, 0.12345677, 0.12345678, 0.4, 0.40001, 0.5, 0.99996])
    short = rounded_down(threshold, scores, digits=2, lowest=0.11)
    assert (scores >= short).tolist() == (scores >= threshold).tolist()
    assert 0.11 <= short <= threshold
    assert rounded_down(0.99996, scores, digits=4, lowest=0.4) == 0.9999
    assert rounded_down(0.3333333, scores, digits=2, lowest=0.3333) == 0.3333
