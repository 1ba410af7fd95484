import pytest

from xdpx.board.finding import RunFolder, listing
from xdpx.board.parts import parts_of
from xdpx.board.predictions import read_predictions
from xdpx.board.safe_files import NotShown


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return read_predictions(str(path))


def test_errors_come_first_the_surest_at_the_top(tmp_path):
    rows = "a\tpos\tpos\t0.9\nb\tpos\tneg\t0.4\nc\tneg\tpos\t0.1\n"
    found = write(tmp_path / "p.tsv", "text\ttarget\tpred\ttarget_prob\n" + rows)
    page = found.page(0, 10, errors_first=True)
    assert [row["cells"][0] for row in page["rows"]] == ["c", "b", "a"]
    assert [row["wrong"] for row in page["rows"]] == [True, True, False]
    assert (page["errors"], page["total"]) == (2, 3)
    assert [row["row"] for row in found.page(1, 1, errors_first=False)["rows"]] == [2]
    assert [row["row"] for row in found.page(0, 9, errors_first=True, words="B")["rows"]] == [2]


def test_lines_may_end_as_on_windows(tmp_path):
    found = write(tmp_path / "p.tsv", "target\ttext\tpred\r\npos\ta\tpos\r\nneg\tb\tpos\r\n")
    assert (found.columns, found.errors) == (["target", "text", "pred"], [1])


def test_the_true_column_is_found_by_its_values_when_its_name_says_nothing(tmp_path):
    found = write(tmp_path / "p.tsv", "text\ttopic\tpred\na\tx\tx\nb\ty\tx\nc\tx\ty\n")
    assert (found.true, len(found.errors)) == (1, 2)


def test_of_numbers_the_largest_error_comes_first(tmp_path):
    found = write(tmp_path / "p.tsv", "text\ttarget\tpred\na\t1\t1.1\nb\t2\t4.5\nc\t3\t2.75\n")
    assert found.is_number
    assert [row["cells"][0] for row in found.page(0, 9, errors_first=True)["rows"]] == ["b", "c", "a"]


def first_cells(found):
    return [row["cells"][0] for row in found.page(0, 9, errors_first=True)["rows"]]


def test_labels_are_right_in_any_case_and_texts_of_a_decoder_only_as_written(tmp_path):
    rows = "a\tPOS\tpos\t0.9\nb\tNeg \tneg\t0.4\nc\tneg\tpos\t0.1\n"
    assert write(tmp_path / "p.tsv", "text\ttarget\tpred\ttarget_prob\n" + rows).errors == [2]
    assert write(tmp_path / "p.jsonl", '{"target": "Yes", "prediction": "yes"}\n').errors == [0]


def test_several_labels_are_right_in_any_order_and_the_surest_error_comes_first(tmp_path):
    rows = [
        "a\ty;x\tx,y\t[0.9, 0.8]\t[0.9, 0.8]", "b\tx\tx,y\t[0.7, 0.6]\t[0.7]", "c\t\ty\t[0.1, 0.9]\t[]",
        "d\tx; y\tx\t[0.9, 0.3]\t[0.9, 0.3]", "e\ty\ty\t[0.1, 0.9]\t[0.9]",
    ]  # fmt: skip
    found = write(tmp_path / "p.tsv", "\n".join(["text\tlabels\tpred\tprob\ttarget_prob", *rows]) + "\n")
    assert (first_cells(found), len(found.errors)) == (["c", "d", "b", "a", "e"], 3)


def test_several_labels_with_an_unknown_separator_are_not_judged(tmp_path):
    row = "a\ty#x\tx,y\t[0.9, 0.8]\t[0.9, 0.8]\n"
    found = write(tmp_path / "p.tsv", "text\tlabels\tpred\tprob\ttarget_prob\n" + row)
    assert (found.errors, found.page(0, 9, errors_first=True)["errors"]) == ([], None)


def test_tags_are_wrong_if_any_differs_those_with_most_wrong_entities_first(tmp_path):
    rows = "a\tB-X O\tB-X O\nb\tB-X O\tO O\nc\tB-X B-X\tO O\n"
    found = write(tmp_path / "p.tsv", "text\tinput_tags\ttags\n" + rows)
    assert (first_cells(found), found.errors) == (["c", "b", "a"], [2, 1])


def test_scores_are_numbers_and_those_of_a_ranking_are_not_judged(tmp_path):
    found = write(tmp_path / "p.tsv", "text\ttarget\tscore\na\t1\t1\nb\t2\t5\n")
    assert (first_cells(found), found.is_number) == (["b", "a"], True)
    found = write(tmp_path / "q.tsv", "query_id\ttext\ttarget\tscore\n1\ta\t1\t-7\n1\tb\t0\t-9\n")
    assert (found.errors, found.true) == ([], -1)


def test_files_of_numbers_and_tags_are_listed_too_but_not_any_table_with_scores(tmp_path):
    for name, header in (("a", "text\ttarget\tscore"), ("b", "text\ttags"), ("c", "trial\tscore\twhy")):
        (tmp_path / f"{name}.tsv").write_text(f"{header}\n")
    run = RunFolder(str(tmp_path), listing(str(tmp_path)))
    assert parts_of(run, str(tmp_path))["predictions"] == ["a.tsv", "b.tsv"]


def test_rows_without_truth_and_rows_of_json_are_shown_in_their_order(tmp_path):
    assert write(tmp_path / "p.tsv", "text\tpred\na\tx\n").errors == []
    found = write(tmp_path / "p.jsonl", '{"input": "a", "n": 1}\nzork\n{"input": "b"}\n')
    assert found.columns == ["input", "n"]
    assert found.rows == [["a", "1"], ["b", ""]]


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "p.tsv").write_bytes(b"a\0b")
    with pytest.raises(NotShown, match="not text"):
        read_predictions(str(tmp_path / "p.tsv"))
    with pytest.raises(NotShown, match="no table"):
        write(tmp_path / "q.tsv", "")
