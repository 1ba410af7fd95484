"""Codecs between texts and token ids: the tokenizers of XDPX, single characters, or SentencePiece."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, refusal
from xdpx.config.hparams import BaseHParams, Configurable
from xdpx.loaders.parsers.files import open_raw
from xdpx.processors.samples import Ragged, offsets_of
from xdpx.tokenizers import tokenizers
from xdpx.tokenizers.base import LibraryTokenizer, Tokenizer
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io


class Codec(Configurable):
    """Converts texts to token ids, and token ids to texts."""

    class HParams(BaseHParams):
        """Fields of every codec."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of each text, int32."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a row of ids."""

    @property
    def end(self) -> int | None:
        """The id of the end of a text; None if the vocabulary does not say."""
        return None

    def is_text(self, token: int) -> bool:
        """Return whether an id may stand for a part of a text, so that it cannot mark the end of one."""
        del token
        return False

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of the vocabulary: the ids of codecs with the same digest have the same meaning."""


PADDING, END, UNKNOWN = 0, 1, 2
NUM_SPECIAL = 3
"""Ids of the character codec that are not characters: padding (and begin), end, unknown."""


class Characters(Codec):
    """Every character is a token: id 0 is padding, 1 the end of a text, 2 an unknown character, then the alphabet."""

    class HParams(Codec.HParams):
        """Fields of the character codec, of which exactly one must be set.

        Attributes:
            alphabet: the characters, in the order of their ids.
            alphabet_from: a text file at any path; its characters, sorted, are the alphabet. Use the same file in
                inputs for training and evaluation, so that ids have the same meaning.
        """

        alphabet: str | None = None
        alphabet_from: str | None = None

    @cached_property
    def alphabet(self) -> str:
        """The characters, in the order of their ids."""
        p = self.hparams
        if (p.alphabet is None) is (p.alphabet_from is None):
            problem = "needs either alphabet or alphabet_from, and not both."
            raise refusal("Characters", problem, "Name the file whose characters are tokens.")
        if p.alphabet is not None:
            return str(p.alphabet)
        with open_raw(p.alphabet_from) as file:
            return "".join(sorted(set(file.read().decode())))

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        codes = _codes(self.alphabet)
        order = np.argsort(codes, kind="stable")
        return codes[order], (order + NUM_SPECIAL).astype(np.int32)

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of each text, looked up with one vectorised search."""
        codes, ids = self._sorted
        asked = _codes("".join(texts))
        places = np.minimum(np.searchsorted(codes, asked), max(len(codes) - 1, 0))
        known = codes[places] == asked if len(codes) else np.zeros(len(asked), np.bool_)
        values = np.full(len(asked), UNKNOWN, np.int32)
        values[known] = ids[places[known]]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return Ragged(values, offsets_of(lengths))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text, without padding and end; unknown characters become U+FFFD."""
        alphabet = self.alphabet
        # A model may have more ids than there are characters, and produce them early in training.
        end = NUM_SPECIAL + len(alphabet)
        return "".join(alphabet[i - NUM_SPECIAL] if NUM_SPECIAL <= i < end else "\ufffd" for i in ids if i > END)

    @property
    def end(self) -> int:
        """The id of the end of a text."""
        return END

    def is_text(self, token: int) -> bool:
        """Return whether an id is of a character, known or not."""
        return token > END

    @property
    def vocab_size(self) -> int:
        """Number of ids: those of the alphabet, and the three before it."""
        return len(self.alphabet) + NUM_SPECIAL

    @property
    def digest(self) -> str:
        """SHA-256 of the alphabet."""
        return hashlib.sha256(f"characters {self.alphabet}".encode("utf-8", "surrogatepass")).hexdigest()


ENDS = ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|eos|>", "[EOS]")
"""Names of the token at the end of a text, in the vocabularies of T5, GPT-2, Llama and others."""
_CONTROL = re.compile(r"\[\S+\]|<\S+>")


class HouseTokenizer(Codec):
    """A tokenizer of `xdpx.tokenizers`, with its own vocabulary or one from a file."""

    class HParams(Codec.HParams):
        """Fields of the codec.

        Attributes:
            tokenizer: its registered name.
            vocab_file: the file of the tokenizer, or a `vocab.txt`.
            data_dir: a folder made by x-prepro whose vocabulary is used instead.
            pad_word: the padding token.
            unk_word: the token for unknown words.
            options: further parameters of the tokenizer.
        """

        tokenizer: str = "auto"
        vocab_file: str | None = None
        data_dir: str | None = None
        pad_word: str = "[PAD]"
        unk_word: str = "[UNK]"
        options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        p = self.hparams
        made: type[Tokenizer] = tokenizers[p.tokenizer]
        options = dict(p.options)
        if p.vocab_file is not None and "vocab_file" in made.Parameters.model_fields:
            options["vocab_file"] = p.vocab_file
        return made(made.Parameters(**options), resources=p.data_dir)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Tokens and their ids."""
        p = self.hparams
        words = {"pad_word": p.pad_word, "unk_word": p.unk_word}
        if p.data_dir is not None:
            return Vocabulary.read(io.join(p.data_dir, "vocab.txt"), **words)
        own = self._tokenizer.vocabulary(**words) if self._tokenizer.needs_vocabulary else None
        if own is not None:
            return own
        if p.vocab_file is None:
            problem = f"'{p.tokenizer}' has no vocabulary of its own."
            raise refusal("tokenizer", problem, "Name a vocab_file, or a data_dir of x-prepro.")
        return Vocabulary.read(p.vocab_file, **words)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._tokenizer, self.vocabulary)

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of each text."""
        encoded = self._encoder.encode_many(texts)
        return Ragged(encoded.values, encoded.offsets)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text: decoded by the library if the tokenizer uses one, else the tokens joined by spaces."""
        if isinstance(self._tokenizer, LibraryTokenizer):
            return str(self._tokenizer.library.decode(list(ids), skip_special_tokens=False))
        tokens = self.vocabulary.tokens
        return " ".join(tokens[i] if 0 <= i < len(tokens) else self.hparams.unk_word for i in ids)

    @property
    def end(self) -> int | None:
        """The id of the end of a text, by its usual names; None if the vocabulary has none of them."""
        tokens = self.vocabulary.tokens
        return next((tokens.index(name) for name in ENDS if name in tokens), None)

    def is_text(self, token: int) -> bool:
        """Return whether an id is of a token that stands for text: not `[unused0]` or `<s>`, but `[UNK]` does."""
        name = self.vocabulary.tokens[token]
        return name == self.hparams.unk_word or _CONTROL.fullmatch(name) is None

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""
        return len(self.vocabulary)

    @property
    def digest(self) -> str:
        """SHA-256 of the vocabulary."""
        return self.vocabulary.digest


class SentencePiece(Codec):
    """A SentencePiece model, such as the vocabularies of Pax and T5: `pip install 'xdpx[sentencepiece]'`."""

    class HParams(Codec.HParams):
        """Fields of the codec.

        Attributes:
            model_file: the `.model` file, at any path.
        """

        model_file: str = ""

    @cached_property
    def _content(self) -> bytes:
        with open_raw(self.hparams.model_file) as file:
            return file.read()

    @cached_property
    def _processor(self) -> Any:
        path = self.hparams.model_file
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            remedy = "Install it: pip install 'xdpx[sentencepiece]'."
            raise _fault(f"'{path}' needs the package sentencepiece.", remedy) from None
        try:
            return SentencePieceProcessor(model_proto=self._content)
        except RuntimeError as error:
            problem = f"'{path}' is not a SentencePiece model ({len(self._content)} bytes)."
            raise _fault(problem, "Give the .model file that spm_train wrote, not its .vocab or a pointer.") from error

    @property
    def end(self) -> int:
        """The id of the end of a text. Raises ConfigError if the model has none."""
        found = int(self._processor.eos_id())
        if found < 0:
            problem = f"'{self.hparams.model_file}' has no end-of-text piece."
            raise _fault(problem, "Train it with one: spm_train --eos_id=1 --pad_id=0 --unk_id=2 --bos_id=-1.")
        return found

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Return the ids of each text."""
        rows = self._processor.encode(list(texts), out_type=int)
        values = np.fromiter(chain.from_iterable(rows), np.int32)
        return Ragged(values, offsets_of(np.fromiter(map(len, rows), np.int64, len(rows))))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text; ids outside of the vocabulary, from a larger model, become the unknown piece."""
        unknown, size = int(self._processor.unk_id()), self.vocab_size
        return str(self._processor.decode([int(i) if 0 <= i < size else unknown for i in ids]))

    @property
    def vocab_size(self) -> int:
        """Number of pieces of the model."""
        return int(self._processor.get_piece_size())

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self._content).hexdigest()


def _fault(problem: str, remedy: str) -> ConfigError:
    return refusal("vocabulary", problem, remedy)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
