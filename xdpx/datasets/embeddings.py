"""Read pretrained word vectors from text files (word2vec, GloVe) into an embedding matrix for a vocabulary."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator
from io import BytesIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.loaders.parsers.files import open_raw
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io

FRACTION = re.compile(rb"-?\d*\.\d+(e[-+]?\d+)?")
"""A number that is no word; a few words of GloVe consist of several, such as `. . .`."""
SPREAD = 0.02
"""Standard deviation of the random vectors of words without a pretrained one."""


class WordVectors(NamedTuple):
    """Vectors for a vocabulary.

    Attributes:
        matrix: float32, shape (vocabulary size, dim).
        num_found: number of tokens with a pretrained vector.
        num_in_other_case: number of the others for which the file has a vector in another case, as of `Paris`.
    """

    matrix: NDArray[np.float32]
    num_found: int
    num_in_other_case: int = 0


def words_with_vector(path: str, wanted: Collection[str]) -> set[str]:
    """Return the words of `wanted` that have a vector in the file."""
    return {word for _, word, _ in _lines(path) if word in wanted}


def read_vectors(path: str, vocabulary: Vocabulary, *, seed: int, special_words: Collection[str]) -> WordVectors:
    """Return the vectors of a vocabulary.

    Args:
        path: text, also compressed or remote: a word and its numbers on each line, optionally with a first line of the
            numbers of words and dimensions.
        vocabulary: of the rows.
        seed: of the random vectors of words that are not in the file, N(0, 1) * 0.02.
        special_words: get zero vectors, unless they are in the file; padding always does.

    Raises:
        ConfigError: a line is not a word and finite numbers, or no word of the vocabulary is in the file.
    """
    matrix: NDArray[np.float32] | None = None
    found = np.zeros(len(vocabulary), np.bool_)
    lowered, seen = [token.lower() for token in vocabulary.tokens], set[str]()
    wanted = set(lowered)
    for line, word, numbers in _lines(path):
        if matrix is None:
            generator = np.random.default_rng(seed)
            matrix = (generator.standard_normal((len(vocabulary), len(numbers))) * SPREAD).astype(np.float32)
        index = vocabulary.find(word)
        if index is not None and not found[index]:
            matrix[index] = _floats(path, line, numbers)
            found[index] = True
        if (lower := word.lower()) in wanted:
            seen.add(lower)
    if matrix is None or not found.any():
        fault = Fault("pretrained_embeddings", "contains no word of the vocabulary.", "Is it text, one word per line?")
        raise ConfigError(path, [fault])
    special = [index for word in special_words if (index := vocabulary.find(word)) is not None]
    matrix[[index for index in special if not found[index]]] = 0
    if vocabulary.pad is not None:
        matrix[vocabulary.pad] = 0
    in_other_case = sum(lowered[index] in seen for index in np.flatnonzero(~found).tolist())
    return WordVectors(matrix, int(found.sum()), in_other_case)


def write_tensor(matrix: NDArray[np.float32]) -> bytes:
    """Return the content of `embeddings.pt`: one float tensor, shape (vocabulary size, dim)."""
    import torch

    buffer = BytesIO()
    torch.save(torch.from_numpy(matrix), buffer)
    return buffer.getvalue()


def _lines(path: str) -> Iterator[tuple[int, str, list[bytes]]]:
    """Yield (line, word, numbers as text). Words that are not UTF-8 are skipped, because no text has them."""
    if not io.isfile(path):
        raise ConfigError(path, [Fault("pretrained_embeddings", "does not exist.", "Correct the path.")])
    with open_raw(path) as file:
        dim = 0
        for line, data in enumerate(file, 1):
            cells = data.removeprefix(codecs.BOM_UTF8 if line == 1 else b"").rstrip().split(b" ")
            if line == 1 and len(cells) == 2 and all(cell.isdigit() for cell in cells):
                dim = int(cells[1])
                continue
            dim = dim or len(cells) - 1
            if dim < 1 or len(cells) <= dim:
                raise _refuse(path, line, f"has {max(len(cells) - 1, 0)} numbers after its word, not {dim or 'any'}")
            if len(cells) > dim + 1 and all(map(FRACTION.fullmatch, cells[1:-dim])):
                raise _refuse(path, line, f"has {len(cells) - 1} numbers after its word, not {dim}")
            try:
                # A few words of GloVe contain spaces, so the numbers are counted from the end.
                yield line, b" ".join(cells[:-dim]).decode(), cells[-dim:]
            except UnicodeDecodeError:
                continue


def _floats(path: str, line: int, numbers: list[bytes]) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            vector = np.array([float(number) for number in numbers]).astype(np.float32)
    except ValueError as error:
        raise _refuse(path, line, f"contains something that is not a number ({error})") from error
    if not np.isfinite(vector).all():
        raise _refuse(path, line, "contains NaN, or a number that is infinite or beyond float32")
    return vector


def _refuse(path: str, line: int, problem: str) -> ConfigError:
    fault = Fault(f"{path}:{line}", f"{problem}.", "Use text vectors: a word and its numbers on each line.")
    return ConfigError(THIS_RUN, [fault])
