from xdpx.reports.tables import as_text, as_tsv, format_cell, union_of_keys

ROWS = [{"run": "a", "score": 0.5}, {"run": "变体", "score": 0.25, "late": 3}]


def test_cells_are_short_and_never_break_a_line():
    assert format_cell(0.123456789) == "0.123457"
    assert format_cell(None) == ""
    assert format_cell("a\tb\nc") == "a b c"


def test_columns_are_those_of_all_rows_wanted_ones_first():
    assert union_of_keys(ROWS, first=["score", "absent"]) == ["score", "run", "late"]


def test_tab_separated_rows_leave_absent_cells_empty():
    assert as_tsv(ROWS, ["run", "score", "late"]) == "run\tscore\tlate\na\t0.5\t\n变体\t0.25\t3\n"
    assert as_tsv(ROWS, ["run"], header=False) == "a\n变体\n"


def test_text_columns_line_up_and_wide_letters_count_twice():
    assert as_text(ROWS, ["run", "score", "late"]).splitlines() == [
        "run   score  late",
        "----  -----  ----",
        "a       0.5",
        "变体   0.25     3",
    ]
