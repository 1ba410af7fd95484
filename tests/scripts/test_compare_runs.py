"""compare_runs on files of predictions: the same rows in any order, refusals, several at once, and the picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score, roc_auc_score, top_k_accuracy_score

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.metrics import mcnemar

RANDOM = np.random.default_rng(0)
TARGET = RANDOM.integers(0, 2, 200)


def predictions(path: Path, right: float, *, order: np.ndarray | None = None, copies: int = 1) -> str:
    """Write predictions of 200 rows, so many of which are right."""
    pred = np.where(np.arange(200) % 100 < 100 * right, TARGET, 1 - TARGET)
    lines = [f"text {i // copies}\t{'ab'[t]}\t{'ab'[p]}\t[0.5, 0.5]\t0.5" for i, (t, p) in enumerate(
        zip(TARGET, pred, strict=True))]  # fmt: skip
    kept = [lines[i] for i in (range(200) if order is None else order)]
    path.write_text("\n".join(["text\ttarget\tpred\tprob\ttarget_prob", *kept]) + "\n")
    return str(path)


def test_rows_are_matched_by_what_they_hold_and_a_clear_difference_is_called_so(tmp_path: Path, capsys) -> None:
    one = predictions(tmp_path / "one.tsv", 0.7)
    other = predictions(tmp_path / "other.tsv", 0.9, order=RANDOM.permutation(200))
    assert main(["compare_runs", one, other, "draws=200"]) == 0
    told = capsys.readouterr().out
    assert f"acc: {other} is better than {one} (0.9 against 0.7, a difference of +0.2" in told
    assert "): significant." in told
    assert "macro_f1" in told


def test_a_small_difference_may_be_chance_and_json_says_the_same(tmp_path: Path, capsys) -> None:
    files = [predictions(tmp_path / f"{share}.tsv", share) for share in (0.80, 0.81)]
    assert main(["compare_runs", *files, "draws=200", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (pair,) = told["comparisons"]
    assert (pair["more_than_chance"], told["rows"], told["metric"]) == (False, 200, "acc")
    assert pair["p"] == pair["metrics"]["acc"]["p"] == mcnemar(0, 2)
    assert pair["metrics"]["acc"]["low"] < 0.01 < pair["metrics"]["acc"]["high"]
    main(["compare_runs", *files, "draws=200"])
    assert "is not significantly better than" in capsys.readouterr().out


def test_of_three_each_is_compared_with_each_and_p_values_grow_by_holm(tmp_path: Path, capsys) -> None:
    files = [predictions(tmp_path / f"{share}.tsv", share) for share in (0.7, 0.72, 0.9)]
    picture = tmp_path / "out.png"
    assert main(["compare_runs", *files, "draws=100", "--json", f"out_file={picture}"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [pair["more_than_chance"] for pair in told["comparisons"]] == [False, True, True]
    assert told["comparisons"][1]["p"] > told["comparisons"][1]["metrics"]["acc"]["p"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_other_rows_are_refused_with_an_example(tmp_path: Path) -> None:
    one = predictions(tmp_path / "one.tsv", 0.7)
    other = tmp_path / "other.tsv"
    other.write_text(Path(one).read_text().replace("text 5\t", "text five\t"))
    with pytest.raises(ConfigError, match=r"1 of 200 rows of .*one.tsv are not in .*'text 5 "):
        main(["compare_runs", one, str(other)])


def test_copies_of_rows_are_drawn_together(tmp_path: Path, capsys) -> None:
    files = [predictions(tmp_path / f"{share}.tsv", share, copies=50) for share in (0.7, 0.9)]
    assert main(["compare_runs", *files, "draws=100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["drawn_together"] == 200 - 8
    assert told["comparisons"][0]["metrics"]["acc"]["test"] == "paired bootstrap"


def test_rows_of_which_only_the_labels_are_known_are_matched_by_their_place_and_not_called_copies(
    tmp_path: Path, capsys
) -> None:
    files = [predictions(tmp_path / f"{share}.tsv", share) for share in (0.8, 0.86)]
    for file in files:
        cells = [line.split("\t")[1:3] for line in Path(file).read_text().splitlines()]
        Path(file).write_text("".join(f"{target}\t{pred}\n" for target, pred in cells))
    assert main(["compare_runs", *files, "draws=100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["drawn_together"] == 0
    assert told["comparisons"][0]["p"] == mcnemar(0, 12)
    lines = Path(files[1]).read_text().splitlines(keepends=True)
    Path(files[1]).write_text("".join([lines[0], *lines[:0:-1]]))
    with pytest.raises(ConfigError, match=r"are not in .*'row "):
        main(["compare_runs", *files])


def test_columns_may_stand_in_another_order(tmp_path: Path, capsys) -> None:
    one = predictions(tmp_path / "one.tsv", 0.7)
    rows = [line.split("\t") for line in Path(one).read_text().splitlines()]
    (tmp_path / "other.tsv").write_text("".join(f"{row[1]}\t{row[2]}\t{row[0]}\n" for row in rows))
    assert main(["compare_runs", one, str(tmp_path / "other.tsv"), "draws=100"]) == 0
    assert "both score 0.7 on 200 rows" in capsys.readouterr().out


def test_a_file_may_begin_with_a_byte_order_mark_and_have_the_line_ends_of_windows(tmp_path: Path, capsys) -> None:
    one, other = (predictions(tmp_path / f"{name}.tsv", 0.7) for name in ("one", "other"))
    Path(other).write_bytes(b"\xef\xbb\xbf" + Path(one).read_bytes().replace(b"\n", b"\r\n"))
    assert main(["compare_runs", one, other, "draws=100"]) == 0
    assert "both score 0.7 on 200 rows" in capsys.readouterr().out


def with_probabilities(path: Path, prob: np.ndarray, target: Sequence[int], columns: str = "prob target_prob") -> str:
    """Write predictions with the labels x, a, m of the classes 0, 1, 2; those of target_prob as x-pred writes them."""
    names, kept = "xam"[: prob.shape[1]], columns.split()
    rows = []
    for number, (shares, label) in enumerate(zip(prob.round(6), target, strict=True)):
        cells = {"prob": str(shares.tolist()), "target_prob": str(shares[label])}
        row = [f"text {number}", names[label], names[shares.argmax()], *(cells[name] for name in kept)]
        rows.append("\t".join(row))
    path.write_text("\n".join(["\t".join(["text", "target", "pred", *kept]), *rows]) + "\n")
    return str(path)


@pytest.mark.parametrize("columns", ["prob target_prob", "prob"])
def test_metrics_of_probabilities_and_numbered_classes_are_those_of_the_file(
    tmp_path: Path, capsys, columns: str
) -> None:
    target, draws = RANDOM.integers(0, 3, 90), RANDOM.dirichlet(np.ones(3), size=(2, 90))
    files = [with_probabilities(tmp_path / f"{each}.tsv", draws[each], target, columns) for each in (0, 1)]
    for metric, expected in (
        ("top2_acc", [top_k_accuracy_score(target, prob, k=2) for prob in draws]),
        ("f1_0", [f1_score(target, prob.argmax(axis=1), average=None)[0] for prob in draws]),
        ("kappa", [cohen_kappa_score(target, prob.argmax(axis=1)) for prob in draws]),
    ):
        assert main(["compare_runs", *files, f"major_metric={metric}", "draws=100", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["scores"]
        assert [told[file][metric] for file in files] == pytest.approx(expected)
    with pytest.raises(ConfigError, match="major_metric: 'auc' is for two classes, but there are 3"):
        main(["compare_runs", *files, "major_metric=auc"])


def test_metrics_that_need_probabilities_are_refused_without_them_or_if_classes_are_unknown(tmp_path: Path) -> None:
    prob, target = RANDOM.dirichlet(np.ones(3), size=60), RANDOM.integers(0, 3, 60)
    files = [with_probabilities(tmp_path / f"{name}.tsv", prob, target, "") for name in ("one", "two")]
    for metric in ("top2_acc", "f1_1"):
        with pytest.raises(ConfigError, match=f"'{metric}' needs the probabilities of all classes, .* RUN RUN on=FILE"):
            main(["compare_runs", *files, f"major_metric={metric}"])
    files = [with_probabilities(tmp_path / f"{name}.tsv", np.array([[0.4, 0.4, 0.2]]), [0]) for name in ("one", "two")]
    with pytest.raises(ConfigError, match="needs the label of each probability in 'prob', and the rows leave it open"):
        main(["compare_runs", *files, "major_metric=f1_1"])
    Path(files[0]).write_text("text\ttarget\tpred\tprob\nx\ta\ta\t[0.5, 0.5]\ny\ta\ta\t\n")
    with pytest.raises(ConfigError, match="line 3 contains no list of probabilities in 'prob'"):
        main(["compare_runs", *files, "major_metric=f1_1"])


def with_several_labels(path: Path, wanted: np.ndarray, prob: np.ndarray, separator: str, names: str = "xam") -> str:
    """Write rows with several labels, the correct ones by the alphabet, the predicted ones by their classes."""
    rows = []
    for number, (there, shares) in enumerate(zip(wanted, prob.round(6), strict=True)):
        labels, found = (
            [name for name, has in zip(names, each, strict=True) if has] for each in (there, shares >= 0.5)
        )
        cells = (f"text {number}", separator.join(sorted(labels)).upper(), ",".join(found))
        rows.append("\t".join([*cells, str(shares.tolist()), str(shares[there].tolist())]))
    path.write_text("\n".join(["text\tlabels\tpred\tprob\ttarget_prob", *rows]) + "\n")
    return str(path)


def test_several_labels_are_compared_as_sets_whatever_their_order_and_separator(tmp_path: Path, capsys) -> None:
    wanted, probs = RANDOM.random((80, 3)) < 0.5, RANDOM.random((2, 80, 3))
    files = [with_several_labels(tmp_path / f"{each}.tsv", wanted, probs[each], " ;"[each]) for each in (0, 1)]
    found = probs >= 0.5
    for metric, expected in (
        ("acc", (found == wanted).all(axis=2).mean(axis=1)),
        ("macro_f1", [f1_score(wanted, each, average="macro") for each in found]),
        ("f1_0", [f1_score(wanted, each, average=None)[0] for each in found]),
        ("macro_auc", [roc_auc_score(wanted, prob, average="macro") for prob in probs]),
    ):
        words = ["target_col_name=labels", f"major_metric={metric}", "draws=100", "--json"]
        assert main(["compare_runs", *files, *words]) == 0
        told = json.loads(capsys.readouterr().out)["scores"]
        assert [told[file][metric] for file in files] == pytest.approx(list(expected))
    with pytest.raises(ConfigError, match="confusion matrix needs one per row"):
        main(["confusion_matrix", files[0], "target_col_name=labels"])


def test_a_separator_that_does_not_fit_and_labels_with_that_of_x_pred_are_refused(tmp_path: Path) -> None:
    wanted, prob = RANDOM.random((40, 3)) < 0.5, RANDOM.random((40, 3))
    files = [with_several_labels(tmp_path / f"{name}.tsv", wanted, prob, "#") for name in ("one", "two")]
    words = ["compare_runs", *files, "target_col_name=labels"]
    with pytest.raises(ConfigError, match="target_prob tells of 3 labels in 'A#M#X', but it is unknown what separates"):
        main(words)
    with pytest.raises(ConfigError, match="is ';', which does not separate 'A#M#X' into the 3 labels"):
        main([*words, "label_separator=;"])
    assert main([*words, "label_separator=#", "draws=100"]) == 0
    Path(files[0]).write_text(Path(files[0]).read_text().replace("A#", "A, B#"))
    with pytest.raises(ConfigError, match="contains a label with ',', which x-pred writes between"):
        main([*words, "label_separator=#"])


def test_numbers_are_compared_by_their_ranks_and_tags_by_their_entities(tmp_path: Path, capsys) -> None:
    wanted = RANDOM.normal(size=80)
    for name, noise in (("near", 0.2), ("far", 2.0)):
        guess = wanted + RANDOM.normal(0, noise, 80)
        rows = [f"text {i}\t{t}\t{g:.4f}" for i, (t, g) in enumerate(zip(wanted, guess, strict=True))]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\ttarget\tscore", *rows]) + "\n")
        tags = [f"a b c {i}\tB-X I-X O O\t{'B-X I-X O O' if noise < i % 3 else 'B-X O O O'}" for i in range(60)]
        (tmp_path / f"{name}.tags.tsv").write_text("\n".join(["text\ttarget\ttags", *tags]) + "\n")
    for suffix, metric in (("tsv", "spearman"), ("tags.tsv", "f1")):
        main(["compare_runs", *(f"{tmp_path}/{name}.{suffix}" for name in ("far", "near")), "draws=200", "--json"])
        told = json.loads(capsys.readouterr().out)
        assert told["metric"] == metric
        assert told["comparisons"][0]["more_than_chance"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one.tsv"], "two or more"),
        (["one.tsv", "nowhere"], "there is no 'nowhere'"),
        (["one.tsv", "folder"], "is a folder, but not a run"),
        (["one.tsv", "two.tsv", "on=dev"], "does not apply to files"),
        (["one.tsv", "two.tsv", "out_file=a.xyz"], "End it in one of"),
        (["one.tsv", "two.tsv", "major_metric=bleu"], "there is no 'bleu'"),
        (["one.tsv", "plain.tsv"], "no column of predictions"),
        (["one.tsv", "bytes.tsv"], "is not text: byte 17 is not UTF-8"),
        (["even.tsv", "nan.tsv"], "1 of 3 rows hold NaN or infinity, first row 2"),
        (["even.tsv", "alike.tsv"], "'spearman' is not defined for alike.tsv"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, monkeypatch, words: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    predictions(tmp_path / "one.tsv", 0.7), predictions(tmp_path / "two.tsv", 0.8)
    (tmp_path / "plain.tsv").write_text("text\ttarget\nx\ta\n")
    (tmp_path / "bytes.tsv").write_bytes(b"text\ttarget\tpred\xff\n")
    for name, scores in (("even", "123"), ("nan", ("1", "nan", "3")), ("alike", "111")):
        rows = [f"{i}\t{i}\t{score}\n" for i, score in enumerate(scores)]
        (tmp_path / f"{name}.tsv").write_text("".join(["text\ttarget\tscore\n", *rows]))
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=said):
        main(["compare_runs", *words])


def test_predictions_written_otherwise_than_the_labels_are_refused_and_empty_ones_named(tmp_path: Path, capsys) -> None:
    one, other = predictions(tmp_path / "one.tsv", 0.7), tmp_path / "other.tsv"
    rows = [line.split("\t") for line in Path(one).read_text().splitlines()]
    place = rows[0].index("pred")

    def write(pred_of: Callable[[int, str], str]) -> list[str]:
        cells = [[*row[:place], pred_of(number, row[place]), *row[place + 1 :]] for number, row in enumerate(rows[1:])]
        other.write_text("\n".join("\t".join(row) for row in (rows[0], *cells)) + "\n")
        return ["compare_runs", one, str(other), "draws=100"]

    with pytest.raises(ConfigError, match="none of the predictions .'class .* is one of the labels"):
        main(write(lambda _, pred: f"class {pred}"))
    assert main(write(lambda number, pred: "" if number < 3 else pred)) == 0
    assert "3 of 200 rows have no prediction" in capsys.readouterr().err
