import pytest

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
