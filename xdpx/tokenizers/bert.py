"""The tokenizers `bert` (word pieces, by the Hugging Face library `tokenizers`) and `bert_id` (texts of ids)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal
from xdpx.config.parameters import param
from xdpx.tokenizers.base import LibraryTokenizer, Tokenizer
from xdpx.tokenizers.characters import Boundaries
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io

SPECIAL_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Tokens that are recognised in raw text, before it is lower-cased or split."""


class BertTokenizer(LibraryTokenizer):
    """Splits texts into word pieces of `vocab_file`, with the same ids as BERT of `tokenizers` and `transformers`."""

    class Parameters(LibraryTokenizer.Parameters):
        """Keys of the BERT tokenizer."""

        vocab_file: str | None = param(None, doc="Existing vocabulary, one word piece per line: the model's vocab.txt.")
        unk_word: str = param("[UNK]", doc="Token for words that are not in the vocabulary.")

    def vocabulary(self, *, pad_word: str, unk_word: str) -> Vocabulary:
        """Return the vocabulary in `vocab.txt`.

        Raises:
            ConfigError: no vocabulary is named, or it lacks the unknown word or the padding word.
        """
        vocabulary = Vocabulary.read(self._vocabulary_path, pad_word=pad_word, unk_word=unk_word)
        for key, word in (("unk_word", unk_word), ("pad_word", pad_word)):
            if word not in vocabulary:
                fault = Fault(key, f"'{word}' is not in {self._vocabulary_path}.", "Name one that is.")
                raise ConfigError(THIS_RUN, [fault])
        return vocabulary

    @property
    def _vocabulary_path(self) -> str:
        if self.resources is not None:
            return io.join(self.resources, "vocab.txt")
        if self.parameters.vocab_file is None:
            fault = Fault("vocab_file", "is missing: word pieces cannot be counted.", "Name the model's vocab.txt.")
            raise ConfigError(THIS_RUN, [fault])
        return str(self.parameters.vocab_file)

    @cached_property
    def library(self) -> Any:
        """The tokenizer of the library `tokenizers`."""
        unk_word = self.parameters.unk_word
        ids = Vocabulary.read(self._vocabulary_path, unk_word=unk_word).ids
        return bert_library(ids, lower=self.parameters.lower, unk_word=unk_word)

    @cached_property
    def boundaries(self) -> Boundaries:  # type: ignore[override]
        """Where BERT splits texts in any context."""
        return Boundaries.of_bert(whole=SPECIAL_WORDS)


def bert_library(ids: Mapping[str, int], *, lower: bool, unk_word: str) -> Any:
    """Return a tokenizer of the library `tokenizers` with the settings of `transformers` for BERT."""
    from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece

    library = Tokenizer(WordPiece(dict(ids), unk_token=unk_word))
    library.normalizer = normalizers.BertNormalizer(lowercase=lower)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [word for word in SPECIAL_WORDS if word in ids]
    library.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    return library


class BertIdTokenizer(Tokenizer):
    """Reads texts of ids that another program made with `vocab_file`, such as `7592 2088`, without special tokens."""

    needs_vocabulary: ClassVar[bool] = True
    boundaries = Boundaries.of_white_space()

    class Parameters(Tokenizer.Parameters):
        """Keys of the tokenizer of ids."""

        vocab_file: str | None = param(None, doc="The vocabulary of the ids, one token per line.")
        unk_word: str = param("[UNK]", doc="Token for words that are not in the vocabulary.")

    def vocabulary(self, *, pad_word: str, unk_word: str) -> Vocabulary:
        """Return the vocabulary.

        Raises:
            ConfigError: no file is named.
        """
        source = self.parameters.vocab_file if self.resources is None else io.join(self.resources, "vocab.txt")
        if source is None:
            fault = Fault("vocab_file", "is missing: ids mean nothing without it.", "Name the model's vocab.txt.")
            raise ConfigError(THIS_RUN, [fault])
        return Vocabulary.read(source, pad_word=pad_word, unk_word=unk_word)

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of the ids in one text."""
        known = self.vocabulary(pad_word="[PAD]", unk_word=self.parameters.unk_word)
        return [known.tokens[number] for number in self.encode([text], known)[0]]

    def encode(self, texts: Sequence[str], vocabulary: Vocabulary) -> list[list[int]]:
        """Return the ids of each text.

        Raises:
            ConfigError: a word is not an id of the vocabulary.
        """
        size = len(vocabulary)
        return [[_number(word, size) for word in text.split()] for text in texts]


def _number(word: str, size: int) -> int:
    if word.isascii() and word.isdigit() and int(word) < size:
        return int(word)
    problem = f"is 'bert_id', but a text holds '{word}', which is not a number from 0 to {size - 1}."
    raise refusal("tokenizer", problem, "Use tokenizer: bert for text, or the ids' own vocab_file.")
