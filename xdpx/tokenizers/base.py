"""What every tokenizer can do, and those that the Hugging Face `tokenizers` library runs."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar

from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.tokenizers.characters import Boundaries
from xdpx.tokenizers.vocabulary import Vocabulary


class Tokenizer(ABC):
    """Cut text into tokens.

    Attributes:
        needs_vocabulary: whether tokens are pieces of a given vocabulary, so that none can be counted from data.
        boundaries: characters at which a text may be cut without changing its tokens; None when there are none.
        obeys_lower: whether `lower` decides the case of texts, and not the vocabulary that the tokenizer brings.
    """

    needs_vocabulary: ClassVar[bool] = False
    boundaries: Boundaries | None = None
    obeys_lower: ClassVar[bool] = True

    class Parameters(BaseParameters):
        """What every tokenizer can be told."""

        lower: bool = param(True, doc="Turn texts into lower case; labels stay as they are written.")

    def __init__(self, parameters: Parameters, *, resources: str | None = None) -> None:
        """Build from parameters.

        Args:
            parameters: what the config says.
            resources: folder that holds what an earlier `x-prepro` kept (`vocab.txt`, `tokenizer.json`). It comes
                before files named in the parameters, which may be gone by now.
        """
        self.parameters: Any = parameters
        self.resources = resources

    @abstractmethod
    def tokenize(self, text: str) -> list[str]:
        """Cut one text into tokens."""

    def vocabulary(self, *, pad_word: str, unk_word: str) -> Vocabulary | None:
        """Return the vocabulary the tokenizer brings along, or None when it is to be counted or read."""
        del pad_word, unk_word
        return None

    def encode(self, texts: Sequence[str], vocabulary: Vocabulary) -> list[list[int]]:
        """Return the ids of the tokens of each text."""
        return [vocabulary.indices(self.tokenize(text)) for text in texts]

    def count(self, texts: Iterable[str]) -> Counter[str]:
        """Count the tokens of many texts."""
        return Counter(chain.from_iterable(map(self.tokenize, texts)))

    def files(self) -> dict[str, str]:
        """Return further text files, by name, that `data_dir` must hold so that the tokenizer can be built again."""
        return {}


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
        """Return the ids of many texts; `vocabulary` is the one the tokenizer brought along."""
        del vocabulary
        return [encoding.ids for encoding in self.library.encode_batch_fast(list(texts), add_special_tokens=False)]
