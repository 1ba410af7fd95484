"""BERT's word pieces, as the Hugging Face `tokenizers` library cuts them, and texts that are ids already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.tokenizers.base import LibraryTokenizer, Tokenizer
from xdpx.tokenizers.characters import Boundaries
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io

SPECIAL_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Found in raw text as they are, before anything is lower-cased or cut."""


class BertTokenizer(LibraryTokenizer):
    """Cut into word pieces of `vocab_file`: the very ids of the BERT tokenizer of `tokenizers` and `transformers`."""

    class Parameters(LibraryTokenizer.Parameters):
        """What the BERT tokenizer can be told."""

        vocab_file: str | None = param(None, doc="Ready vocabulary, one word piece per line: the model's vocab.txt.")
        unk_word: str = param("[UNK]", doc="Token for what the vocabulary lacks.")

    def vocabulary(self, *, pad_word: str, unk_word: str) -> Vocabulary:
        """Read `vocab.txt`.

        Raises:
            ConfigError: no vocabulary is named, or it holds no unknown word.
        """
        vocabulary = Vocabulary.read(self._vocabulary_path, pad_word=pad_word, unk_word=unk_word)
        for key, word in (("unk_word", unk_word), ("pad_word", pad_word)):
            if word not in vocabulary:
                fault = Fault(key, f"'{word}' is not in {self._vocabulary_path}.", "Name the one that is.")
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
        """The library's tokenizer."""
        unk_word = self.parameters.unk_word
        ids = Vocabulary.read(self._vocabulary_path, unk_word=unk_word).ids
        return bert_library(ids, lower=self.parameters.lower, unk_word=unk_word)

    @cached_property
    def boundaries(self) -> Boundaries:  # type: ignore[override]
        """Where BERT cuts whatever stands around."""
        return Boundaries.of_bert(whole=SPECIAL_WORDS)


def bert_library(ids: Mapping[str, int], *, lower: bool, unk_word: str) -> Any:
    """Set up the library's tokenizer as `transformers` sets it up for BERT."""
    from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece

    library = Tokenizer(WordPiece(dict(ids), unk_token=unk_word))
    library.normalizer = normalizers.BertNormalizer(lowercase=lower)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [word for word in SPECIAL_WORDS if word in ids]
    library.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    return library


class BertIdTokenizer(Tokenizer):
    """Read the ids that another program made with `vocab_file`, such as `7592 2088`, without special ones."""

    needs_vocabulary: ClassVar[bool] = True
    boundaries = Boundaries.of_white_space()

    class Parameters(Tokenizer.Parameters):
        """What the tokenizer of ids can be told."""

        vocab_file: str | None = param(None, doc="The vocabulary that the ids are numbers of, one token per line.")
        unk_word: str = param("[UNK]", doc="Token for what the vocabulary lacks.")

    def vocabulary(self, *, pad_word: str, unk_word: str) -> Vocabulary:
        """Read the vocabulary.

        Raises:
            ConfigError: none is named.
        """
        source = self.parameters.vocab_file if self.resources is None else io.join(self.resources, "vocab.txt")
        if source is None:
            fault = Fault("vocab_file", "is missing: ids mean nothing without it.", "Name the model's vocab.txt.")
            raise ConfigError(THIS_RUN, [fault])
        return Vocabulary.read(source, pad_word=pad_word, unk_word=unk_word)

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens that the ids of one text stand for."""
        known = self.vocabulary(pad_word="[PAD]", unk_word=self.parameters.unk_word)
        return [known.tokens[number] for number in self.encode([text], known)[0]]

    def encode(self, texts: Sequence[str], vocabulary: Vocabulary) -> list[list[int]]:
        """Return the ids of each text.

        Raises:
            ConfigError: something else than a number of the vocabulary stands there.
        """
        size = len(vocabulary)
        return [[_number(word, size) for word in text.split()] for text in texts]


def _number(word: str, size: int) -> int:
    if word.isascii() and word.isdigit() and int(word) < size:
        return int(word)
    problem = f"is 'bert_id', but a text holds '{word}', which is not a number from 0 to {size - 1}."
    raise ConfigError(
        THIS_RUN, [Fault("tokenizer", problem, "Use tokenizer: bert for text, or the ids' own vocab_file.")]
    )
