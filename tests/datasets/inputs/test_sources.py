from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import (
    Arrays,
    Characters,
    LanguageModelFeatures,
    NumpyFiles,
    SeqIOInput,
    Source,
    StoreFile,
    Task,
    TextFiles,
    walk,
)
from xdpx.processors.samples import Ragged
from xdpx.utils import io


def rows_of(source: Source, column: str) -> list[Any]:
    found = source.take(np.arange(source.num_examples))[column]
    if isinstance(found, Ragged):
        return [found.row(i).tolist() for i in range(len(found))]
    return list(found)


def read_whole(source: Any, width: int, **task: Any) -> list[list[int]]:
    """All labels of one epoch, through an input."""
    converter = LanguageModelFeatures.HParams(with_inputs=False)
    data = SeqIOInput(
        mixture_or_task=Task.HParams(name="t", source=source, **task),
        batch_size=2,
        task_feature_lengths={"targets": width},
        feature_converter=converter,
        eval_window="full_epoch",
    )
    return [
        row[weights > 0].tolist()
        for batch in walk(data, data.window)
        for row, weights, real in zip(batch.labels, batch.weights, batch.eval_sample_weights, strict=True)
        if real
    ]


def test_lists_arrays_and_texts_become_columns() -> None:
    source = Arrays(columns={"a": [[1, 2], [3]], "b": np.array([[1, 2], [3, 4]]), "c": [5, 6], "d": ["x", "yz"]})
    assert rows_of(source, "a") == [[1, 2], [3]]
    assert rows_of(source, "b") == [[1, 2], [3, 4]]
    assert rows_of(source, "c") == [5, 6]
    assert rows_of(source, "d") == ["x", "yz"]


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"different numbers of examples: \{'a': 1, 'b': 2\}"):
        Arrays(columns={"a": [[1]], "b": [[1], [2]]}).num_examples  # noqa: B018 - opened by being asked
    with pytest.raises(ConfigError, match=r"shape \(1, 1, 1\)"):
        Arrays(columns={"a": np.zeros((1, 1, 1))}).num_examples  # noqa: B018 - opened by being asked


def test_npy_files_are_read_from_any_path(any_root: str) -> None:
    path = f"{any_root}/rows.npy"
    with io.open(path, "wb") as file:
        np.save(file, np.arange(12, dtype=np.uint16).reshape(4, 3))
    source = NumpyFiles(paths={"targets": path})
    assert source.num_examples == 4
    assert rows_of(source, "targets") == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_a_local_npy_file_is_mapped_and_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(10))
    column = NumpyFiles(paths={"targets": str(tmp_path / "rows.npy")}).columns["targets"]
    assert isinstance(column, np.ndarray)
    assert not column.flags.writeable
    assert isinstance(column.base, np.memmap)


def test_one_long_row_of_tokens_is_cut_into_chunks(tmp_path: Path) -> None:
    np.save(tmp_path / "stream.npy", np.arange(2, 12, dtype=np.int32))
    source = NumpyFiles.HParams(paths={"targets": str(tmp_path / "stream.npy")})
    assert read_whole(source, 4, chunk=4) == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 11]]


def test_rows_are_laid_behind_one_another_before_they_are_cut(tmp_path: Path) -> None:
    source = Arrays.HParams(columns={"targets": [[2, 3, 4], [5], [6, 7]]})
    assert read_whole(source, 4, chunk=4) == [[2, 3, 4, 5], [6, 7]]
    assert tmp_path.exists()


@pytest.mark.parametrize(
    ("array", "told"),
    [(np.array([{}]), "holds Python objects"), (np.asfortranarray(np.ones((3, 2))), "Fortran order")],
)
def test_an_npy_file_that_cannot_be_mapped_is_refused(tmp_path: Path, array: Any, told: str) -> None:
    np.save(tmp_path / "bad.npy", array, allow_pickle=True)
    with pytest.raises(ConfigError, match=told):
        NumpyFiles(paths={"targets": str(tmp_path / "bad.npy")}).num_examples  # noqa: B018 - opened by being asked


def test_what_is_no_npy_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_text("hello")
    with pytest.raises(ConfigError, match="is not a .npy file"):
        NumpyFiles(paths={"targets": str(tmp_path / "bad.npy")}).num_examples  # noqa: B018 - opened by being asked


def test_a_store_of_x_prepro_is_read(tmp_path: Path, write_store: Any) -> None:
    samples = write_store(tmp_path / "train.pt", 7)
    column = next(name for name, value in samples[0].items() if isinstance(value, list))
    found = read_whole(StoreFile.HParams(path=str(tmp_path / "train.pt")), 50, features={"targets": column})
    assert found == [sample[column] for sample in samples]


def test_raw_text_is_read_line_by_line_from_any_path(any_root: str) -> None:
    with io.open(f"{any_root}/a.txt", "w") as file:
        file.write("ab\nba\n")
    with io.open(f"{any_root}/b.txt.gz", "wb") as file:
        file.write(gzip.compress(b"b\n"))
    source = TextFiles(paths=(f"{any_root}/a.txt", f"{any_root}/b.txt.gz"))
    assert rows_of(source, "text") == ["ab", "ba", "b"]
    assert rows_of(TextFiles(paths=f"{any_root}/*.txt"), "text") == ["ab", "ba"]


def test_a_file_is_one_text_where_lines_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text("ab\nba\n")
    path = str(tmp_path / "play.txt")
    source = TextFiles.HParams(paths=path, whole_files=True)
    assert rows_of(source.Instantiate(), "text") == ["ab\nba\n"]
    found = read_whole(
        source, 4, chunk=4, features={"targets": "text"}, vocabulary=Characters.HParams(alphabet_from=path)
    )
    assert found == [[4, 5, 3, 5], [4, 3]]


def test_columns_of_a_parser_of_the_house_have_names(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a question\tan answer\nb\tc\n")
    source = TextFiles(
        paths=str(tmp_path / "pairs.tsv"), parser="csv", columns=("inputs", "targets"), options={"delimiter": "\t"}
    )
    assert rows_of(source, "targets") == ["an answer", "c"]


def test_a_line_that_has_too_few_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\n")
    source = TextFiles(paths=str(tmp_path / "pairs.tsv"), parser="csv", columns=("inputs", "targets"))
    with pytest.raises(ConfigError, match="line 2: has 1 columns, not 2"):
        source.num_examples  # noqa: B018 - opened by being asked


def test_a_pattern_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="but there is no such file"):
        TextFiles(paths=f"{tmp_path}/*.txt").num_examples  # noqa: B018 - opened by being asked
