"""The vocabulary of tokens and their ids: `vocab.txt`, one token per line, whose line number (from 0) is its id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import commit, io

SPACES = ("\u0120", "\u2581")
"""Signs for a space in the tokens of byte-level and SentencePiece tokenizers: G with a dot, a lower block."""
NEWLINE = "[NEWLINE]"
"""How a line break in a token is written in the file."""


class Vocabulary:
    """Tokens and their ids.

    Attributes:
        tokens: all tokens; the index is the id.
        pad_word, unk_word: the tokens for padding and for words that are not in the vocabulary.
    """

    def __init__(self, tokens: Iterable[str], *, pad_word: str = "[PAD]", unk_word: str = "[UNK]") -> None:
        self.tokens = list(tokens)
        self.pad_word = pad_word
        self.unk_word = unk_word
        # A token that occurs twice gets the id of its last line, as in every BERT tokenizer.
        self._ids = {token: index for index, token in enumerate(self.tokens)}

    @classmethod
    def read(cls, path: str, *, pad_word: str = "[PAD]", unk_word: str = "[UNK]") -> Vocabulary:
        """Return the vocabulary in a file.

        Raises:
            ConfigError: the file is not UTF-8 text, or is empty.
        """
        try:
            with io.open(path, "r", encoding="utf-8-sig", newline="") as file:
                tokens = lines_of(file.read())
        except UnicodeDecodeError as error:
            fault = Fault("vocab_file", f"'{path}' is not UTF-8 text ({error.reason}).", "Give one token per line.")
            raise ConfigError(path, [fault]) from error
        if not tokens:
            raise ConfigError(path, [Fault("vocab_file", "contains no token.", "Give one token per line.")])
        return cls((token.replace(NEWLINE, "\n") for token in tokens), pad_word=pad_word, unk_word=unk_word)

    @classmethod
    def build(
        cls,
        counts: Mapping[str, int],
        *,
        special_words: Sequence[str],
        threshold: int = -1,
        max_size: int = -1,
        always: Set[str] = frozenset(),
    ) -> Vocabulary:
        """Return a vocabulary built from counts: special words, then others by frequency, ties by alphabet.

        Args:
            counts: count of each token.
            special_words: padding, unknown, then any others; always included.
            threshold: other tokens must have a higher count than this.
            max_size: maximum number of tokens, including special words; -1 for no limit.
            always: tokens that need not pass the threshold (those with a pretrained embedding).
        """
        special = list(dict.fromkeys(special_words))
        chosen = [word for word, count in counts.items() if count > threshold or word in always]
        chosen = sorted(set(chosen) - set(special), key=lambda word: (-counts[word], word))
        room = max(max_size - len(special), 0) if max_size > 0 else len(chosen)
        return cls([*special, *chosen[:room]], pad_word=special[0], unk_word=special[1])

    def doubles(self) -> list[str]:
        """Return the tokens that occur more than once, in order; each once less than it occurs."""
        return [token for index, token in enumerate(self.tokens) if self._ids[token] != index]

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def find(self, token: str) -> int | None:
        """Return the id of a token, or None if it is unknown."""
        return self._ids.get(token)

    def index(self, token: str) -> int:
        """Return the id of a token, or that of the unknown word. Raises KeyError if that is missing, too."""
        found = self._ids.get(token)
        return self._ids[self.unk_word] if found is None else found

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of many tokens, as `index` does."""
        unknown = self.unk
        found = [self._ids.get(token, unknown) for token in tokens]
        if unknown is None and None in found:
            raise KeyError(self.unk_word)
        return found  # type: ignore[return-value]

    @property
    def ids(self) -> Mapping[str, int]:
        """Token -> id."""
        return self._ids

    @property
    def pad(self) -> int | None:
        """Id of the padding word, None if it is missing."""
        return self.find(self.pad_word)

    @property
    def unk(self) -> int | None:
        """Id of the unknown word, None if it is missing."""
        return self.find(self.unk_word)

    @property
    def cls(self) -> int | None:
        """Id of [CLS], None if it is missing."""
        return self.find("[CLS]")

    @property
    def sep(self) -> int | None:
        """Id of [SEP], None if it is missing."""
        return self.find("[SEP]")

    @property
    def mask(self) -> int | None:
        """Id of [MASK], None if it is missing."""
        return self.find("[MASK]")

    @cached_property
    def continuation(self) -> NDArray[np.bool_]:
        """True for tokens that continue a word (`##ing`), shape (vocabulary size,)."""
        return np.fromiter((token.startswith("##") for token in self.tokens), np.bool_, len(self.tokens))

    @cached_property
    def signs_spaces(self) -> bool:
        """Whether words begin with a sign for the space before them (RoBERTa, T5), and no token with `##`."""
        return not self.continuation.any() and any(token.startswith(SPACES) and len(token) > 1 for token in self.tokens)

    @property
    def text(self) -> str:
        """The content of `vocab.txt`."""
        return "".join(f"{token}\n".replace("\n", NEWLINE, token.count("\n")) for token in self.tokens)

    @property
    def digest(self) -> str:
        """SHA-256 of `text`: vocabularies with the same digest assign the same ids to all tokens."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    def write(self, path: str) -> None:
        """Write `vocab.txt` atomically to `path`."""
        commit.write_text(path, self.text)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, split at line feeds only, because tokens and labels may contain other separators.

    If all lines end in carriage returns, these are removed.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if lines and all(line.endswith("\r") for line in lines):
        return [line[:-1] for line in lines]
    return lines
