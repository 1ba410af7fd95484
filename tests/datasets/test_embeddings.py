"""Word vectors for a vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.embeddings import read_vectors, words_with_vector
from xdpx.tokenizers.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "a", "b", ". .", "zz"])
LINES = "a 1 2 3\nq 9 9 9\n. . 4 5 6\n[PAD] 7 7 7\n"


def read(path: Path, content: str | bytes, seed: int = 1) -> np.ndarray:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_vectors(str(path), VOCABULARY, seed=seed, special_words=("[PAD]", "[UNK]")).matrix


@pytest.mark.parametrize("header", ["", "4 3\n"])
def test_vectors_stand_at_the_ids_of_their_words(tmp_path: Path, header: str) -> None:
    matrix = read(tmp_path / "vectors.txt", header + LINES)
    assert matrix.shape == (6, 3)
    assert matrix.dtype == np.float32
    assert matrix[[2, 4]].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_special_rows_are_zero_and_unseen_ones_small_and_drawn_from_the_seed(tmp_path: Path) -> None:
    matrix = read(tmp_path / "vectors.txt", LINES)
    assert not matrix[[0, 1]].any()
    assert 0 < np.abs(matrix[[3, 5]]).max() < 0.2
    assert (matrix == read(tmp_path / "vectors.txt", LINES)).all()
    assert (matrix[3] != read(tmp_path / "vectors.txt", LINES, seed=2)[3]).any()


def test_words_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path / "vectors.txt", b"\xff 1 2\na 3 4\n")[2].tolist() == [3, 4]


def test_words_with_a_vector(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text(LINES)
    assert words_with_vector(str(tmp_path / "vectors.txt"), {"a", "b", ". ."}) == {"a", ". ."}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2\nb 1\n", r"vectors\.txt:2: has 1 numbers after its word, not 2"),
        ("a 1 x\n", r"vectors\.txt:1: contains something that is not a number"),
        ("a 1 nan\n", r"vectors\.txt:1: contains NaN, or a number that is infinite"),
        ("a 1 1e300\n", r"vectors\.txt:1: contains NaN, or a number that is infinite"),
        ("b 1 2\na 0.5 -1.5 2.5\n", r"vectors\.txt:2: has 3 numbers after its word, not 2"),
        ("q 1 2\n", "contains no word of the vocabulary"),
        ("", "contains no word of the vocabulary"),
    ],
)
def test_what_is_no_file_of_vectors_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / "vectors.txt", content)


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    assert read(tmp_path / "vectors.txt", b"\xef\xbb\xbfa 1 2\n")[2].tolist() == [1, 2]


def test_words_that_have_a_vector_in_another_case_are_counted(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("A 1 2\nzz 3 4\nZZ 3 4\nqQ 1 1\n")
    vectors = read_vectors(str(tmp_path / "vectors.txt"), VOCABULARY, seed=1, special_words=())
    assert (vectors.num_found, vectors.num_in_other_case) == (1, 1)
