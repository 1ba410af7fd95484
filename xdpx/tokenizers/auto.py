"""The tokenizer `auto`: any Hugging Face tokenizer, from a folder, a `tokenizer.json`, or a name on the hub."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, ClassVar

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal
from xdpx.config.parameters import param
from xdpx.tokenizers.agreement import added_tokens, settings_in
from xdpx.tokenizers.base import LibraryTokenizer
from xdpx.tokenizers.characters import Boundaries
from xdpx.tokenizers.vocabulary import SPACES, Vocabulary
from xdpx.utils import hub, io

FILE = "tokenizer.json"
SAME_SETTING = (
    ("do_lower_case", "lowercase"),
    ("strip_accents", "strip_accents"),
    ("tokenize_chinese_chars", "handle_chinese_chars"),
    ("add_prefix_space", "add_prefix_space"),
)
"""Keys of tokenizer_config.json, and what they are called in a normalizer or pre-tokenizer of tokenizer.json."""


class AutoTokenizer(LibraryTokenizer):
    """Tokenizes with the Hugging Face tokenizer `vocab_file`: a folder, a `tokenizer.json` or a name on the hub."""

    class Parameters(LibraryTokenizer.Parameters):
        """Keys of the automatic tokenizer."""

        vocab_file: str | None = param(None, doc="The tokenizer: a folder, a tokenizer.json or a name on the hub.")
        space_before_words: bool = param(
            True,
            doc="Encode the words of taggers and other loaders of words with the space before them, as within a text, "
            "if the tokenizer makes that a part of the word: RoBERTa's, GPT-2's.",
        )

    obeys_lower: ClassVar[bool] = False

    def vocabulary(self, *, pad_word: str, unk_word: str) -> Vocabulary:
        """Return the tokenizer's own vocabulary. An id without a token gets a placeholder that no text contains."""
        ids = self.library.get_vocab(with_added_tokens=True)
        tokens = [f"[unused id {number}]" for number in range(max(ids.values()) + 1)]
        for token, number in ids.items():
            tokens[number] = token
        return Vocabulary(tokens, pad_word=pad_word, unk_word=unk_word)

    def files(self) -> dict[str, str]:
        """Return the complete `tokenizer.json`, to keep beside the data, so that nothing else is needed later."""
        return {FILE: self._definition}

    @cached_property
    def _definition(self) -> str:
        if self.resources is not None:
            return _read(io.join(self.resources, FILE))
        source = self.parameters.vocab_file
        if source is None:
            fault = Fault("vocab_file", "is missing.", "Name a Hugging Face tokenizer: a folder, a file or a hub name.")
            raise ConfigError(THIS_RUN, [fault])
        if io.isfile(source):
            return _read(source)
        if not io.isfile(io.join(source, FILE)):
            return _ask_transformers(source)
        definition = _read(io.join(source, FILE))
        return _ask_transformers(source) if _is_overruled(definition, source) else definition

    @cached_property
    def library(self) -> Any:
        """The tokenizer of the library `tokenizers`. Raises ConfigError if the definition is invalid."""
        from tokenizers import Tokenizer as Library

        definition = self._definition
        try:
            library = Library.from_str(definition)
        except Exception as error:
            fault = Fault("vocab_file", f"is not a tokenizer.json: {error}.", "Name a Hugging Face tokenizer.")
            raise ConfigError(str(self.resources or self.parameters.vocab_file), [fault]) from error
        library.no_truncation()
        library.no_padding()
        return library

    @cached_property
    def boundaries(self) -> Boundaries | None:  # type: ignore[override]
        """Where texts can be split, for a BERT-like tokenizer; None for all others, which get whole texts."""
        definition = json.loads(self._definition)
        normalizer = definition.get("normalizer") or {}
        added = definition.get("added_tokens") or []
        bert_like = (
            normalizer.get("type") == "BertNormalizer"
            and normalizer.get("clean_text") is True
            and (definition.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
            and (definition.get("model") or {}).get("type") == "WordPiece"
            and all(_stays_whole(token) for token in added)
        )
        if not bert_like:
            return None
        chinese = normalizer.get("handle_chinese_chars") is True
        return Boundaries.of_bert(chinese=chinese, whole=[token["content"] for token in added])

    @cached_property
    def space_before_words(self) -> bool:  # type: ignore[override]
        """Whether a space is a part of the word behind it, as in byte-level tokenizers, and is to be kept for words."""
        alone, behind, both = map(self.tokenize, ("a", " a", "a a"))
        joins = "".join(behind)[:1] in SPACES and behind != alone and both == [*alone, *behind]
        return bool(self.parameters.space_before_words) and joins

    @cached_property
    def separators(self) -> int:
        """How many separators the model of this tokenizer expects between two texts; 0 if the definition has none."""
        whole = json.loads(self._definition).get("post_processor") or {}
        parts = [whole, *whole.get("processors", ())]
        if any(part.get("type") == "RobertaProcessing" for part in parts):
            return 2
        templates = (part["pair"] for part in parts if part.get("type") == "TemplateProcessing")
        texts = [place for place, part in enumerate(next(templates, [])) if "Sequence" in part]
        return texts[1] - texts[0] - 1 if len(texts) > 1 else 0

    def __getstate__(self) -> dict[str, Any]:
        """Return only the definition for worker processes, so that they do not call `transformers` again."""
        return {"parameters": self.parameters, "resources": self.resources, "_definition": self._definition}


def _stays_whole(token: dict[str, Any]) -> bool:
    """Return whether an added token is found in a text in any context."""
    plain = not token.get("normalized") and not token.get("single_word")
    return plain and not any(character.isspace() for character in token["content"])


def _is_overruled(definition: str, folder: str) -> bool:
    """Return whether the tokenizer_config.json of a folder contradicts its tokenizer.json.

    Which of them holds depends on the class of the tokenizer, so that transformers has to say.
    """
    settings = settings_in(folder)
    try:
        found: dict[str, Any] = json.loads(definition)
    except ValueError:
        return False  # the library says what is wrong with it
    parts = [found.get(name) or {} for name in ("normalizer", "pre_tokenizer")]
    pairs = [(settings.get(key), part.get(name)) for part in parts for key, name in SAME_SETTING if name in part]
    there = {token.get("content") for token in found.get("added_tokens") or []}
    return any(said not in (None, done) for said, done in pairs) or not there.issuperset(added_tokens(settings))


def _read(path: str) -> str:
    with io.open(path, "r", encoding="utf-8") as file:
        return str(file.read())


def _ask_transformers(source: str) -> str:
    """Return the definition of a tokenizer that `transformers` loads, also without a `tokenizer.json`.

    Code that comes with a tokenizer is never run.
    """
    try:
        found = hub.load(source, _load)
    except (OSError, ValueError) as error:
        problem = f"is '{source}', where no tokenizer was found: {str(error).partition(chr(10))[0].rstrip('.')}."
        remedy = hub.how_to_fetch(source) or "Name a folder, a tokenizer.json or a name on the hub."
        raise refusal("vocab_file", problem, remedy) from error
    backend = getattr(found, "backend_tokenizer", None)
    if backend is None:
        fault = Fault("vocab_file", f"'{source}' has no fast tokenizer.", "Convert it to a tokenizer.json first.")
        raise ConfigError(THIS_RUN, [fault])
    return str(backend.to_str())


def _load(source: str, here: bool) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=here)
