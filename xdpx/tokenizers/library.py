"""Tokenizers that the Hugging Face `tokenizers` library runs."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from xdpx.tokenizers.base import Tokenizer
from xdpx.tokenizers.vocabulary import Vocabulary

# The library's own threads and our worker processes would fight for the same cores.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class LibraryTokenizer(Tokenizer):
    """Cuts as a tokenizer of the library does that brings its own vocabulary."""

    needs_vocabulary: ClassVar[bool] = True

    @property
    @abstractmethod
    def library(self) -> Any:
        """The library's tokenizer, without truncation and padding."""

    def tokenize(self, text: str) -> list[str]:
        """Cut one text into tokens."""
        return list(self.library.encode(text, add_special_tokens=False).tokens)

    def encode(self, texts: Sequence[str], vocabulary: Vocabulary) -> list[list[int]]:
        """Give the ids of many texts; `vocabulary` is the one the tokenizer brought along."""
        del vocabulary
        return [encoding.ids for encoding in self.library.encode_batch_fast(list(texts), add_special_tokens=False)]
