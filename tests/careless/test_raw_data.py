"""Raw data as people mail them: quoted, with headers, with the wrong delimiter, swapped, or read by the wrong model."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xdpx.datasets.store import Store
from xdpx.run import main

Said = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return what was told on the console since the last time."""

    def read() -> str:
        captured = capsys.readouterr()
        return captured.out + captured.err

    return read


def prepro(folder: Path, *, code: int = 0, data: str = "data", **values: Any) -> Path:
    """Run x-prepro on `folder/raw` and return its data_dir, `folder/data`."""
    keys = {"loader": "single", "processor": "single", "tokenizer": "space", "max_len": 64, "data_files": "*", **values}
    places = [f"data_source={folder / 'raw'}", f"data_dir={folder / data}"]
    assert main(["x-prepro", *places, *(f"{key}={json.dumps(value)}" for key, value in keys.items())]) == code
    return folder / data


def raw(folder: Path, **texts: str) -> None:
    """Write raw files; `train_tsv` becomes train.tsv."""
    (folder / "raw").mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / "raw" / name.replace("_", ".")).write_text(text, encoding="utf-8")


def texts_and_labels(data: Path, split: str = "train") -> list[tuple[str, str]]:
    words, labels = ((data / name).read_text().splitlines() for name in ("vocab.txt", "target_map.txt"))
    store = Store.open(str(data / f"{split}.pt"))
    samples = [store.sample(index) for index in range(len(store))]
    return [(" ".join(words[each] for each in sample["tokens"]), labels[sample["target"]]) for sample in samples]


# ---- cells in quotes, rows too wide or too narrow


@pytest.mark.parametrize("header", [True, False])
def test_a_comma_inside_quotes_is_text_and_no_label(tmp_path: Path, header: bool) -> None:
    rows = '"good, tasty",1\n"so ""bad""\nand cold",0\nfine,1\n'
    raw(tmp_path, train_csv=("review,label\n" if header else "") + rows)
    fields = {"fields": ["review", "label"]} if header else {}
    data = prepro(tmp_path, parser="csv", delimiter=",", **fields)
    assert texts_and_labels(data) == [("good, tasty", "1"), ('so "bad" and cold', "0"), ("fine", "1")]


def test_a_row_with_more_cells_than_the_header_is_a_fault_with_its_line(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_csv="review,label\ngood,1\ngood, tasty,1\nbad,0\n")
    prepro(tmp_path, code=2, parser="csv", delimiter=",", fields=["review", "label"])
    assert "train.csv:3: has 3 columns, more than the header (2)" in said()
    assert not (tmp_path / "data" / "train.pt").exists()


def test_a_quoted_file_read_without_quotes_names_quotechar(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_csv='review,label\n"good, tasty",1\n"bad, cold",0\n')
    prepro(tmp_path, code=2, parser="csv", delimiter=",", fields=["review", "label"], quotechar=None)
    told = said()
    assert "train.csv:2: has 3 columns, with quotes" in told
    assert "set quotechar: '\"'" in told


def test_quoted_cells_around_tabs_name_quotechar(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv='fine\t1\n"good\ttasty"\t1\n')
    prepro(tmp_path, code=2)
    assert "set quotechar: '\"'" in said()


def test_quotes_in_a_tsv_stay_text(tmp_path: Path) -> None:
    raw(tmp_path, train_tsv='"It is," he said\t1\n"fine"\t0\n')
    assert texts_and_labels(prepro(tmp_path)) == [('"it is," he said', "1"), ('"fine"', "0")]


def test_a_cell_that_opens_with_a_quotation_is_refused_and_told_how_to_be_text(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_csv='"It is" he said,1\nfine,0\n')
    prepro(tmp_path, code=2, parser="csv", delimiter=",")
    assert "train.csv:1: is not quoted csv" in (told := said())
    assert "set quotechar: null" in told
    data = prepro(tmp_path, parser="csv", delimiter=",", quotechar=None)
    assert texts_and_labels(data) == [('"it is" he said', "1"), ("fine", "0")]


# ---- a header taken for a row, a delimiter that is another, columns swapped


ROWS = [("good", "1"), ("bad", "0"), ("fine film", "1"), ("poor", "0"), ("nice", "1"), ("cold", "0")]


def table(delimiter: str, *, header: str = "") -> str:
    return header + "".join(f"{text}{delimiter}{label}\n" for text, label in ROWS)


@pytest.mark.parametrize("first", ["text\tlabel", "what people said\tlabel", "sentence\tpolarity", "say\tverdict"])
def test_a_header_line_makes_no_sample_and_no_class(tmp_path: Path, said: Said, first: str) -> None:
    raw(tmp_path, train_tsv=table("\t", header=f"{first}\n"), dev_tsv=table("\t", header=f"{first}\n"))
    prepro(tmp_path, code=2)
    assert "dev.tsv:1: the first row looks like the names of columns" in (told := said())
    assert "start_line: 1" in told
    assert texts_and_labels(prepro(tmp_path, start_line=1)) == ROWS


def test_a_header_of_a_test_without_labels_is_seen_too(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv=table("\t"), test_tsv="text\ngood\nbad\n")
    prepro(tmp_path, code=2)
    assert "test.tsv:1" in said()


@pytest.mark.parametrize("delimiter", [",", ";", " ", "   "])
def test_labels_behind_another_delimiter_are_a_fault_and_no_unlabelled_data(
    tmp_path: Path, said: Said, delimiter: str
) -> None:
    raw(tmp_path, train_txt=table(delimiter) * 4, dev_txt=table("\t"))
    prepro(tmp_path, code=2)
    assert "train.txt:1: no line has a label, but" in said()


def test_a_quoted_table_read_as_tsv_is_told_of_its_comma_and_its_names(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, all_csv="label,review\n" + '1,"good, tasty"\n0,"so ""bad""\nand cold"\n1,fine\n' * 4)
    prepro(tmp_path, code=2)
    assert "all.csv:1: no line has a label, but ',' cuts each into 2 columns. Set delimiter: ','" in said()
    prepro(tmp_path, code=2, parser="csv", delimiter=",")
    assert 'fields: ["review", "label"]' in said()


def test_json_lines_read_as_text_are_a_fault(tmp_path: Path, said: Said) -> None:
    lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
    raw(tmp_path, train_jsonl=lines)
    prepro(tmp_path, code=2)
    assert "parser: jsonl, fields: [...] of: text, label" in said()
    assert texts_and_labels(prepro(tmp_path, parser="jsonl", fields=["text", "label"])) == ROWS


def test_a_nul_in_json_does_not_blame_the_encoding(tmp_path: Path, said: Said) -> None:
    lines = "".join(json.dumps({"text": f"{text}\0", "label": label}) + "\n" for text, label in ROWS)
    raw(tmp_path, train_jsonl=lines)
    prepro(tmp_path, code=2, parser="jsonl", fields=["text", "label"])
    told = said()
    assert "train.jsonl:1: holds a NUL character" in told
    assert "encoding" not in told


def test_a_train_file_without_labels_beside_a_dev_file_with_labels_is_a_fault(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv="good or bad\nfine\n", dev_tsv=table("\t"))
    prepro(tmp_path, code=2)
    assert "train: no line has a label, as those of 'dev' have; the first is 'good or bad'" in said()
    prepro(tmp_path, ignore_findings=["no_labels"])


def test_what_is_rightly_without_labels_stays_so(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv=table("\t"), test_tsv="\n".join(text for text, _ in ROWS), corpus_txt="a b\nc, d\n")
    prepro(tmp_path, data_files=["train.tsv", "test.tsv"])
    prepro(tmp_path, data_files="corpus.txt", loader="corpus", parser="none", data="other")
    assert "no_labels" not in said()


def test_the_label_in_front_of_the_text_is_a_fault(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv="".join(f"{number % 2}\ttext number {number}\n" for number in range(40)))
    prepro(tmp_path, code=2)
    assert "40 different labels in 40 rows" in said()


# ---- what is in the data


def test_the_same_rows_in_train_and_test_are_told_with_their_lines(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv=table("\t"), test_tsv="else\t1\nGood\t1\n")
    data = prepro(tmp_path)
    assert "test: 1 of 2 texts (50.00%) also occur in training" in (told := said())
    assert "test.tsv:2 = " in told
    found = json.loads((data / "findings.json").read_text())
    assert "leakage" in {each["code"] for each in found["findings"]}
    assert found["looked_at"] == {"train": 6, "test": 2}
    prepro(tmp_path, ignore_findings=["leakage"])
    assert "also occur in training" not in said()


def test_duplicates_and_texts_under_two_labels_are_told(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv=table("\t") + "good\t1\ncold\t1\n")
    prepro(tmp_path)
    told = said()
    assert "1 of 8 rows repeat an earlier row of the split" in told
    assert "1 text has two labels or more" in told


def test_labels_written_in_two_ways_are_told(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv="a\tPos\nb\tpos\nc\tneg\nd\t1\ne\t1.0\n")
    prepro(tmp_path)
    told = said()
    assert "label 'Pos' is also written 'pos': one class" in told
    assert "labels '1', '1.0' are spelt almost alike, but are different classes" in told


CHINESE = [f"这家宾馆在小街道上不大好找房间也很旧{chr(0x4E00 + number)}下次不会再来了" for number in range(200)]


def test_an_english_vocabulary_on_chinese_text_is_a_fault(tmp_path: Path, said: Said) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "这", "大", "小", "上"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    raw(tmp_path, train_tsv="".join(f"{text}\t{index % 2}\n" for index, text in enumerate(CHINESE)))
    keys: dict[str, Any] = {"tokenizer": "bert", "vocab_file": str(tmp_path / "vocab.txt"), "processor": "bert_single"}
    data = prepro(tmp_path, code=2, **keys)
    assert "of the tokens are not in the vocabulary. Is it for another language" in said()
    assert not (data / "train.pt").exists()
    prepro(tmp_path, ignore_findings=["unknown_tokens"], **keys)


def test_one_token_for_a_whole_chinese_text_is_told(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv="".join(f"{text}\t{index % 2}\n" for index, text in enumerate(CHINESE)))
    prepro(tmp_path, tokenizer="space")
    assert "texts are not split into words" in (told := said())
    assert "char_zh" in told
    prepro(tmp_path, tokenizer="char_zh", data="other")
    assert "not cut" not in said()


def test_words_of_held_out_texts_are_unknown_as_they_will_be_in_use(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv=table("\t"), dev_tsv="good unheard unseen\t1\nbad\t0\n")
    prepro(tmp_path)
    told = said()
    assert "dev: 2 samples of 2 lines; 4 tokens, 50.00% of them unknown" in told
    assert "50.0% of the tokens are unknown, but none in training" in told
    assert "threshold: 1" in told


def test_a_train_file_of_blank_lines_is_a_fault(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_txt="\n \n\n")
    prepro(tmp_path, code=2)
    assert "train: none of its 3 texts has a token" in said()


@pytest.mark.parametrize(("blank", "code"), [("train", 2), ("dev", 0)])
def test_a_file_of_blank_lines_beside_labelled_rows_has_no_labels(
    blank: str, code: int, tmp_path: Path, said: Said
) -> None:
    texts = {"train_tsv": table("\t"), "dev_tsv": table("\t"), f"{blank}_tsv": "\n \n\n"}
    raw(tmp_path, **texts)
    prepro(tmp_path, code=code)
    assert "no line has a label, as those of" in said()


# ---- files that are none


def test_a_folder_called_like_a_raw_file_is_not_passed_over(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, dev_tsv=table("\t"))
    (tmp_path / "raw/train.tsv").mkdir()
    prepro(tmp_path, code=2)
    assert "'train.tsv' is a folder, not a file. Name the files in it" in said()
    prepro(tmp_path, code=2, data_files=["train.tsv", "dev.tsv"])
    assert "'train.tsv' is a folder, not a file" in said()
    (tmp_path / "raw/train.tsv/part-0").write_text(table("\t"))
    data = prepro(tmp_path, data_files={"train.tsv/part-0": "train"})
    assert texts_and_labels(data) == ROWS


def test_a_compressed_file_under_the_name_of_a_table_is_named(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, dev_tsv=table("\t"))
    told = ((gzip.compress(table("\t").encode()), "compressed by gzip, not text. Give it the ending .gz."),
            (b"PK\x03\x04" + bytes(range(128, 255)), "a zip archive or a workbook, not text. Unpack it"))  # fmt: skip
    for data, what in told:
        (tmp_path / "raw/train.tsv").write_bytes(data)
        prepro(tmp_path, code=2)
        assert f"'train.tsv' is {what}" in said()


def test_a_pointer_of_git_lfs_is_no_text(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv="version https://git-lfs.github.com/spec/v1\noid sha256:1f\nsize 123\n")
    prepro(tmp_path, code=2)
    assert "train.tsv: 1 fault\n  data_files: is a pointer of Git LFS, not the file. Fetch it: git lfs pull." in said()


@pytest.mark.parametrize("field", ["text", "label"])
def test_a_nan_that_pandas_writes_into_json_is_no_text(tmp_path: Path, said: Said, field: str) -> None:
    lines: list[dict[str, Any]] = [{"text": text, "label": label} for text, label in ROWS]
    lines.append({"text": "x", "label": "1", field: float("nan")})
    raw(tmp_path, train_jsonl="".join(json.dumps(line) + "\n" for line in lines))
    prepro(tmp_path, code=2, parser="jsonl", fields=["text", "label"])
    assert f"train.jsonl:7: field '{field}' is NaN or infinite, not text" in said()


def test_a_wrong_encoding_is_named_with_the_likely_one_which_reads_the_file(tmp_path: Path, said: Said) -> None:
    rows = "".join(f"这家酒店很好，服务员也很热情，我们第 {index} 次来了\t{index % 2}\n" for index in range(40))
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/train.tsv").write_bytes(rows.encode("gbk"))
    prepro(tmp_path, code=2, tokenizer="char_zh")
    told = said()
    assert "train.tsv:1: is not UTF-8 text (byte 0xd5 at 1)" in told
    assert "The file is likely gb18030: set encoding: gb18030" in told
    prepro(tmp_path, code=2, tokenizer="char_zh", encoding="big5")
    assert "is not big5 text" in said()
    assert len(Store.open(str(prepro(tmp_path, tokenizer="char_zh", encoding="gb18030") / "train.pt"))) == 40


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_header_in_another_encoding_names_the_likely_one(tmp_path: Path, said: Said, delimiter: str) -> None:
    rows = "".join(f'"这家酒店很好，我们第 {index} 次来了"{delimiter}{index % 2}\n' for index in range(40))
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/train.csv").write_bytes(f"内容{delimiter}标签\n{rows}".encode("gb18030"))
    keys = {"tokenizer": "char_zh", "delimiter": delimiter, "fields": ["内容", "标签"]}
    prepro(tmp_path, code=2, **keys)
    told = said()
    assert "train.csv:1: is not UTF-8 text" in told
    assert "set encoding: gb18030" in told
    prepro(tmp_path, code=2, **keys, skip_bad_lines=True)  # without a header no column is known
    assert "fields: name columns, but the header is not UTF-8 text" in said()
    assert len(Store.open(str(prepro(tmp_path, **keys, encoding="gb18030") / "train.pt"))) == 40


@pytest.mark.parametrize("title", ["sep=,\n", '"Reviews", exported\n\n'])
def test_names_of_columns_below_a_title_are_found(tmp_path: Path, said: Said, title: str) -> None:
    raw(tmp_path, train_csv=f"{title}text,label\nfine,1\nso bad,0\n")
    keys = {"delimiter": ",", "fields": ["text", "label"]}
    prepro(tmp_path, code=2, **keys)
    start = title.count("\n")
    assert f"fields: are not in the first line, but in line {start + 1}. Set start_line: {start}." in said()
    assert texts_and_labels(prepro(tmp_path, **keys, start_line=start)) == [("fine", "1"), ("so bad", "0")]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_byte_order_mark_is_named(tmp_path: Path, said: Said, encoding: str) -> None:
    rows = "".join(f"film {index} 上三下\t{index % 2}\n" for index in range(40))
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/train.tsv").write_bytes(rows.encode(encoding))
    for given in ({}, {"encoding": "utf-16"}):
        prepro(tmp_path, code=2, **given)
        assert f"et encoding: {encoding}" in said()
    assert texts_and_labels(prepro(tmp_path, encoding=encoding))[7] == ("film 7 上三下", "1")


@pytest.mark.parametrize(
    ("text", "written", "given", "told"),
    [
        ("这家酒店很好，我们第 {} 次来了", "gbk", "latin-1", "likely gb18030"),
        ("这家酒店很好，我们第 {} 次来了", "gb18030", "big5", "likely gb18030"),
        ("очень хороший отель {}", "cp1251", "latin-1", "likely cp1251"),
        ("très bon hôtel, déjà vu à l'été {}", "latin-1", "latin-1", ""),
        ("très bon hôtel, déjà vu à l'été {}", "cp1252", "cp1252", ""),
        ("这家酒店很好，我们第 {} 次来了", "gbk", "gb2312", ""),
        ("очень хороший отель {}", "koi8-r", "koi8-r", ""),
        ("zażółć gęślą jaźń {}", "iso8859-2", "iso8859-2", ""),
    ],
)
def test_an_encoding_that_fits_by_chance_alone_is_told(
    tmp_path: Path, said: Said, text: str, written: str, given: str, told: str
) -> None:
    (tmp_path / "raw").mkdir()
    rows = "".join(f"{text.format(index)}\t{index % 2}\n" for index in range(30))
    (tmp_path / "raw/train.tsv").write_bytes(rows.encode(written))
    prepro(tmp_path, encoding=given)
    found = said()
    assert told in found
    assert ("[encoding]" in found) == bool(told)


# ---- first rows, and rows that are headers


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_header_within_a_file_is_no_row(tmp_path: Path, said: Said, mark: str) -> None:
    rows = mark + "text,label\n" + "".join(f"film {index},{'ab'[index % 2]}\n" for index in range(20))
    raw(tmp_path, train_csv=rows + rows)
    keys = {"delimiter": ",", "fields": ["text", "label"]}
    prepro(tmp_path, code=2, **keys)
    assert "train.csv:22: repeats the header" in said()
    assert len(texts_and_labels(prepro(tmp_path, skip_bad_lines=True, **keys))) == 40


def test_a_header_of_tagged_words_is_told(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_txt="word tag\n" + "the O\nactor B-PER\n\n" * 20, vocab_txt="[PAD]\n[UNK]\nthe\nactor\n")
    keys = {"loader": "tagged", "processor": "bert_token", "tokenizer": "space", "data_files": ["train.txt"]}
    prepro(tmp_path, **keys)
    told = said()
    assert "label 'tag' (1 of 41) is the name of a column: a header was read as a row. Take that line out" in told
    assert "start_line" not in told  # which this parser lacks


def test_a_first_row_that_is_no_header_is_not_left_out(tmp_path: Path, said: Said) -> None:
    rows = "".join(f"film {index}\t{'ab'[index % 2]}\n" for index in range(20))
    raw(tmp_path, train_tsv=rows, dev_tsv="text\tlabel\n" + rows)
    prepro(tmp_path, code=2, start_line=1)
    assert "train.tsv:1: start_line: 1 leaves out a row that is not a header: 'film 0', 'a'" in said()
    raw(tmp_path, train_tsv="text\tlabel\n" + rows)
    assert len(texts_and_labels(prepro(tmp_path, start_line=1))) == 20


def test_a_sheet_without_a_header_does_not_lose_its_first_row(tmp_path: Path, said: Said) -> None:
    workbook = pytest.importorskip("openpyxl").Workbook()
    for index in range(20):
        workbook.active.append([f"film {index}", "ab"[index % 2]])
    (tmp_path / "raw").mkdir()
    workbook.save(tmp_path / "raw/train.xlsx")
    prepro(tmp_path, code=2, parser="excel", sheet_name="Sheet")
    assert "train.xlsx:1: the first row, taken for the names of columns, is a row with a label: 'film 0', 'a'" in said()


@pytest.mark.parametrize("skip", [False, True])
def test_a_title_above_the_rows_does_not_take_their_labels_away(tmp_path: Path, said: Said, skip: bool) -> None:
    rows = "".join(f"film {index}\t{'ab'[index % 2]}\n" for index in range(20))
    raw(tmp_path, train_tsv=f"reviews of 2024\n{rows}")
    data = prepro(tmp_path, code=0 if skip else 2, skip_bad_lines=skip)
    assert "line 1 has 1 column, not 2" in said().replace("train.tsv:1:", "line 1")
    assert not skip or len(texts_and_labels(data)) == 20


# ---- cells in quotes that are read as text


def test_cells_that_pandas_quoted_in_a_tsv_are_told(tmp_path: Path, said: Said) -> None:
    cells = ['"he said ""good"""' if index % 5 == 0 else f"film {index}" for index in range(20)]
    raw(tmp_path, train_tsv="".join(f"{cell}\t{'ab'[index % 2]}\n" for index, cell in enumerate(cells)))
    prepro(tmp_path)
    assert "quotes wrap 4 cells of the first 20 rows, and are doubled within" in said()
    assert texts_and_labels(prepro(tmp_path, data="again", quotechar='"'))[0] == ('he said "good"', "a")
    assert "[quotes]" not in said()


def test_quotation_marks_of_sentences_are_not_told(tmp_path: Path, said: Said) -> None:
    cells = ['"" good "" he said', '"good" he said', '"good"'] * 5
    raw(tmp_path, train_tsv="".join(f"{cell} {index}\t{'ab'[index % 2]}\n" for index, cell in enumerate(cells)))
    prepro(tmp_path)
    assert "[quotes]" not in said()


def test_quotes_behind_a_blank_are_told(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_csv="".join(f'"film {index}", "{"ab"[index % 2]}"\n' for index in range(20)))
    prepro(tmp_path, delimiter=",")
    assert "quotes wrap every cell of column 2" in said()


# ---- JSON in another layout


@pytest.mark.parametrize(
    ("name", "content", "parser", "told"),
    [
        ("train.jsonl", json.dumps([{"text": "a", "label": "x"}] * 9, indent=1), "jsonl", "use parser: json;"),
        ("train.json", json.dumps({"data": [{"text": "a"}]}), "json", "jq .data FILE"),
        ("train.jsonl", '{"Text": "a", "label": "x"}\n', "jsonl", "has no field 'text', but 'Text'"),
        ("train.jsonl", '{"data": [], "version": 1}\n', "jsonl", "has no field 'text', but 'data', 'version'"),
        ("train.json", '[{"text": "好"}]', "json", "Name its encoding: encoding: gbk"),
    ],
)
def test_json_in_another_layout_is_told_how_to_be_read(
    tmp_path: Path, said: Said, name: str, content: str, parser: str, told: str
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / name).write_text(content, encoding="gbk")
    prepro(tmp_path, code=2, parser=parser, fields=["text", "label"])
    assert told in said()


# ---- several labels of a row


@pytest.mark.parametrize("cell", ["['news', 'sport']", '["news", "sport"]', "{'news', 'sport'}"])
def test_labels_in_a_list_are_not_cut_into_pieces(tmp_path: Path, said: Said, cell: str) -> None:
    raw(tmp_path, train_tsv="".join(f"film {index}\t{cell}\n" for index in range(20)))
    prepro(tmp_path, code=2, label_separator=",")
    assert "are pieces of a list, as Python and JSON write it" in said()


@pytest.mark.parametrize(("cells", "told"), [(["a;b", "a", "b;c"], True), (["arts; crafts", "a", "b"], False)])
def test_another_separator_of_labels_is_told(tmp_path: Path, said: Said, cells: list[str], told: bool) -> None:
    raw(tmp_path, train_tsv="".join(f"film {index}\t{cells[index % 3]}\n" for index in range(20)))
    prepro(tmp_path, label_separator=",")
    assert ("look like several, with ';' between them" in said()) == told


def test_lists_of_labels_in_json_are_told_how_to_be_written(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_jsonl=json.dumps({"text": "a", "labels": ["x", "y"]}) + "\n")
    prepro(tmp_path, code=2, parser="jsonl", fields=["text", "labels"], label_separator=",")
    assert "field 'labels' is a list, not text. Join its items into one text" in said()


def test_a_training_file_with_one_number_in_all_rows_is_told(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_tsv="film a\t3\nfilm b\t3\n", dev_tsv="film c\t2.5\nfilm d\t4\n")
    prepro(tmp_path, target_type="number")
    assert "train: every sample has the number '3'" in said()


# ---- questions


QUESTIONS = {"loader": "qa", "parser": "squad", "processor": "bert_qa", "lower": True}


def test_sound_questions_are_not_said_to_be_blank(tmp_path: Path, said: Said) -> None:
    answer = {"question": "where ?", "answers": [{"text": "paris", "answer_start": 12}]}
    raw(
        tmp_path, train_json=json.dumps({"data": [{"paragraphs": [{"context": "the city of paris", "qas": [answer]}]}]})
    )
    words = "[PAD] [UNK] [CLS] [SEP] where ? the city of paris"
    (tmp_path / "vocab.txt").write_text("\n".join(words.split()))
    prepro(tmp_path, vocab_file=str(tmp_path / "vocab.txt"), tokenizer="bert", **QUESTIONS)
    assert "no token" not in said()


def test_answers_that_begin_elsewhere_are_counted(tmp_path: Path, said: Said) -> None:
    starts = (3, 4, 8, 7)
    asked = [{"question": "where ?", "answers": [{"text": "oslo", "answer_start": start}]} for start in starts]
    raw(tmp_path, train_json=json.dumps({"data": [{"paragraphs": [{"context": "oslooooslo", "qas": asked}]}]}))
    data = prepro(tmp_path, **QUESTIONS)
    assert "train: 4 answers are not where the file says in characters; the nearest occurrence is used" in said()
    assert "text" in Store.open(str(data / "train.pt"))


def test_answers_need_a_processor_that_reads_them(tmp_path: Path, said: Said) -> None:
    raw(tmp_path, train_json=json.dumps({"data": []}))
    prepro(tmp_path, code=2, **{**QUESTIONS, "loader": "pair"})
    assert "'bert_qa' reads answers in a text. Loader 'pair' has no answers: choose two that match" in said()
    prepro(tmp_path, code=2, **{**QUESTIONS, "processor": "bert_pair"})
    assert "'bert_pair' does not read answers in a text. Loader 'qa' has answers" in said()
