"""BERT's word pieces, as the Hugging Face `tokenizers` library cuts them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.tokenizers.boundaries import Boundaries
from xdpx.tokenizers.library import LibraryTokenizer
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
