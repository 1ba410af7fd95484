"""The base classes of tokenizers, and of those that use the Hugging Face library `tokenizers`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, ClassVar

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal, wrong_return
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.tokenizers.alignment import Span, aligned
from xdpx.tokenizers.characters import Boundaries
from xdpx.tokenizers.vocabulary import Vocabulary


class Tokenizer(ABC):
    """Splits text into tokens.

    Attributes:
        needs_vocabulary: whether tokens come from a given vocabulary, which cannot be built by counting.
        boundaries: characters at which a text can be split without changing its tokens; None if there are none.
        obeys_lower: whether the key `lower` decides the case of texts, rather than the tokenizer's own definition.
        space_before_words: whether a word that is encoded alone, unless it is the first of its text, needs the space
            before it to get the tokens that it has within the text.
    """

    needs_vocabulary: ClassVar[bool] = False
    boundaries: Boundaries | None = None
    obeys_lower: ClassVar[bool] = True
    space_before_words: bool = False

    class Parameters(BaseParameters):
        """Keys of every tokenizer."""

        lower: bool = param(True, doc="Convert texts to lower case; labels are kept as written.")

    def __init__(self, parameters: Parameters, *, resources: str | None = None) -> None:
        """Build the tokenizer.

        Args:
            parameters: from the config.
            resources: folder with files kept by an earlier `x-prepro` (`vocab.txt`, `tokenizer.json`). They take
                precedence over files named in the parameters, which may no longer exist.
        """
        self.parameters: Any = parameters
        self.resources = resources

    @abstractmethod
    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of one text."""

    def vocabulary(self, *, pad_word: str, unk_word: str) -> Vocabulary | None:
        """Return the tokenizer's own vocabulary, or None if it must be built by counting or read from a file."""
        del pad_word, unk_word
        return None

    def encode(self, texts: Sequence[str], vocabulary: Vocabulary) -> list[list[int]]:
        """Return the ids of the tokens of each text."""
        return [vocabulary.indices(self._tokens(text)) for text in texts]

    def spans(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return where the tokens of each text stand in it: the first character of each, and the one after its last."""
        return [aligned(self._tokens(text), text) for text in texts]

    def count(self, texts: Iterable[str]) -> Counter[str]:
        """Return the counts of the tokens of many texts."""
        return Counter(chain.from_iterable(map(self._tokens, texts)))

    def _tokens(self, text: str) -> list[str]:
        """Return the tokens of one text, or raise ConfigError if a user's `tokenize` returns something else."""
        tokens: Any = self.tokenize(text)
        if isinstance(tokens, Iterable) and not isinstance(tokens, str | bytes):
            listed = list(tokens)
            if all(issubclass(kind, str) for kind in set(map(type, listed))):
                return listed
        found = f"{tokens!r:.60} for {text!r:.60}"
        raise wrong_return("tokenizer", self, "tokenize", found, "Return a list of texts.")

    def files(self) -> dict[str, str]:
        """Return name -> content of further text files that `data_dir` must contain to rebuild the tokenizer.

        They are copied into runs and exports, so a name must not be one that XDPX writes there (`TAKEN`).
        """
        return {}


TAKEN = (
    "args.py", "args.resume-*.py", "prepro.args.py", "vocab.txt", "word_vocab.txt", "target_map.txt", "labels.txt",
    "config.json", "bert_config.json", "tokenizer_config.json", "inputs.json", "export.json", "temperature.json",
    "findings.json", "status.json", "memory_copies.json", "meta.hjson", "starter_config*", "snapshot*", "log.txt",
    "metrics.jsonl", "*.log.tsv", "*.manifest.json*", "*.pt", "*.pts", "checkpoint-*", "model.*", "saved_model.pb",
    "assets", "variables", "plots", "eval", "transformers", "stacks", "nonfinite", "profile", ".*",
)  # fmt: skip
"""Patterns of the names of files and folders in data_dir, save_dir and exports."""


def kept_files(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the files of a tokenizer.

    Raises:
        ConfigError: a name is not a plain file name, or is taken, or a content is not text.
    """
    found: object = tokenizer.files()  # written by users
    what = f"{type(tokenizer).__name__}.files()"
    if not isinstance(found, Mapping):
        problem = f"{what} gives {type(found).__name__}."
        raise refusal("tokenizer", problem, "Return a dict: file name to text.")
    faults = []
    for name, text in found.items():
        if not isinstance(name, str) or not name or "/" in name or "\\" in name:
            faults.append(Fault("tokenizer", f"{what} names {name!r}.", "Use a file name without folders."))
        elif any(fnmatchcase(name, pattern) for pattern in TAKEN):
            problem = f"{what} names '{name}', which XDPX uses for a file of its own."
            faults.append(Fault("tokenizer", problem, "Choose another name, such as rules.json."))
        elif not isinstance(text, str):
            problem = f"{what} gives {type(text).__name__} as the content of '{name}'."
            faults.append(Fault("tokenizer", problem, "Make it text."))
    if faults:
        raise ConfigError(THIS_RUN, faults)
    return dict(found)


# The library's own threads would compete with our worker processes for the same cores.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class LibraryTokenizer(Tokenizer):
    """Base of tokenizers that wrap one of the library, with its own vocabulary."""

    needs_vocabulary: ClassVar[bool] = True

    @property
    @abstractmethod
    def library(self) -> Any:
        """The library's tokenizer, without truncation and padding."""

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of one text."""
        return list(self.library.encode(text, add_special_tokens=False).tokens)

    def encode(self, texts: Sequence[str], vocabulary: Vocabulary) -> list[list[int]]:
        """Return the ids of many texts, without special tokens; `vocabulary` must be the tokenizer's own."""
        del vocabulary
        return [encoding.ids for encoding in self.library.encode_batch_fast(list(texts), add_special_tokens=False)]

    def spans(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return where the tokens of each text stand in it, as the library says."""
        return [encoding.offsets for encoding in self.library.encode_batch(list(texts), add_special_tokens=False)]
