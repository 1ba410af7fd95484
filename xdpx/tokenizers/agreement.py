"""Check that texts were encoded with the vocabulary that the weights were trained with, and in its case.

Otherwise mistakes would go unnoticed, because an embedding table accepts any id below its size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from xdpx.config.catalogue import entry
from xdpx.config.faults import Fault, first_few
from xdpx.tokenizers.target_map import folded
from xdpx.tokenizers.vocabulary import Vocabulary, lines_of
from xdpx.utils import io

VOCABULARY, LABELS, DEFINITION, CONFIG = "vocab.txt", "target_map.txt", "tokenizer.json", "config.json"
SETTINGS = "tokenizer_config.json"
LISTS = (VOCABULARY, LABELS)
"""Files whose line numbers are the ids, or the classes, in a store."""

FREE = re.compile(r"\[unused.*\]|<unused.*>|<extra_id_\d+>")
"""Placeholder tokens that no text contains, whose ids may have been reused for other tokens."""

CASED_SHARE = 0.01
"""Share of tokens with capital letters from which a vocabulary counts as cased; uncased ones may contain a few."""

CAPITAL = re.compile(r"[A-Z]")
SPECIAL = re.compile(r"\[.*\]|<.*>")


def of_weights(key: str, weights: str, data_dir: str) -> Fault | None:
    """Return a fault if the tokens of a data_dir differ from those that weights were trained with; else None.

    Args:
        key: of the config that names the weights, for the fault.
        weights: a folder in Hugging Face format, a save_dir, or a file in one. Without tokens beside it the result is
            None.
        data_dir: of the run. Without a vocabulary in it the result is None.

    The sizes of the vocabularies are not compared.
    """
    ours = io.join(data_dir, VOCABULARY)
    found = _beside(weights if io.isdir(weights) else io.parent(weights))
    if found is None or not io.isfile(ours) or io.abspath(ours) == io.abspath(found[0]):
        return None
    path, theirs = found
    tokens = Vocabulary.read(ours).tokens
    for line, (here, there) in enumerate(zip(tokens, theirs, strict=False), 1):
        if here != there and not FREE.fullmatch(there) and not FREE.fullmatch(here):
            problem = (
                f"is '{weights}', whose tokens are not those that the data were encoded with: line {line} is "
                f"{here!r} in {ours}, and {there!r} in {path}."
            )
            remedy = f"Preprocess with vocab_file: {path}, or name the weights that belong to the data."
            return Fault(key, problem, remedy)
    return None


def of_classifier(key: str, weights: str, data_dir: str) -> Fault | None:
    """Return a fault if a loaded classifier has the labels of a data_dir in another order; else None.

    A classifier of other labels is another task's, whose outputs may well be a start, and is no fault. Arguments as of
    `of_weights`.
    """
    folder = weights if io.isdir(weights) else io.parent(weights)
    path, ours = io.join(folder, LABELS), io.join(data_dir, LABELS)
    if not io.isfile(ours) or io.abspath(ours) == io.abspath(path):
        return None
    theirs = [folded(label) for label in (_lines(path) if io.isfile(path) else _labels_of_library(folder))]
    here = [folded(label) for label in _lines(ours)]
    if here == theirs or sorted(here) != sorted(theirs):
        return None
    place = next(place for place, pair in enumerate(zip(here, theirs, strict=True)) if pair[0] != pair[1])
    problem = (
        f"is '{weights}', whose classifier has the same labels in another order: class {place} is {theirs[place]!r} "
        f"there, and {here[place]!r} in {ours}. Classes would be swapped."
    )
    written = path if io.isfile(path) else f"a file with the lines {', '.join(theirs[:10])}"
    return Fault(key, problem, f"Preprocess with target_map_file: {written}.")


def of_data(key: str, used: str, other: str) -> Fault | None:
    """Return a fault if data were encoded with another list of tokens, or labels, than the model's; else None.

    Args:
        key: of the config that names the data, for the fault.
        used: the file that the model was trained with.
        other: the file of the same name beside the data; if it does not exist, the result is None.
    """
    if io.abspath(other) == io.abspath(used) or not io.isfile(other):
        return None
    ours, theirs = _lines(used), _lines(other)
    if io.name(used) == LABELS:  # earlier versions wrote them in lower case
        ours, theirs = [folded(label) for label in ours], [folded(label) for label in theirs]
    if ours == theirs:
        return None
    pairs = enumerate(zip_longest(ours, theirs, fillvalue=None), 1)
    line, (was, now) = next((line, pair) for line, pair in pairs if pair[0] != pair[1])
    was, now = ("not there" if each is None else repr(each) for each in (was, now))
    problem = f"points to data that were encoded differently: line {line} is {now} in {other}, and {was} in {used}."
    name = "vocab_file" if io.name(used) == VOCABULARY else "target_map_file"
    return Fault(key, problem, f"Use the data_dir of the model, or preprocess again with {name}: {used}.")


def other_words(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return the keys that decide how texts are cut into words and that differ between two args.py of x-prepro."""
    keys = ("tokenizer", *(item.key for item in entry("tokenizer", ours["tokenizer"]).parameters))
    of_lists = {"vocab_file"}  # whose content is compared, wherever it is
    known = (key for key in keys if key not in of_lists and key in theirs and key in ours)
    return [key for key in known if theirs[key] != ours[key]]


def case_conflict(vocab_file: str, tokens: Sequence[str], *, lower: bool) -> tuple[str, bool] | None:
    """Return (problem, whether it is certain) if `lower` contradicts the case of a vocabulary; else None.

    It is certain if it comes from `do_lower_case` in the tokenizer_config.json beside the vocabulary; without that, the
    tokens are examined.
    """
    lowers = settings_in(io.parent(vocab_file)).get("do_lower_case")
    if isinstance(lowers, bool):
        verb = "lower-cases its texts" if lowers else "keeps the case of its texts"
        problem = f"is {str(lower).lower()}, but the model of {vocab_file} {verb} (tokenizer_config.json)"
        return (f"{problem}. Set lower: {str(lowers).lower()}.", True) if lowers != lower else None
    plain = [token for token in tokens if not SPECIAL.fullmatch(token)]
    share = sum(bool(CAPITAL.search(token)) for token in plain) / max(len(plain), 1)
    if lower and share >= CASED_SHARE:
        problem = (
            f"is true, but {share:.1%} of the tokens of {vocab_file} have capital letters, which no text will match"
        )
        return f"{problem}. If it belongs to a cased model, set lower: false.", False
    letters = any("a" <= token[-1:] <= "z" for token in plain)
    if not lower and not share and letters:
        problem = f"is false, but no token of {vocab_file} has a capital letter: words with one will be unknown"
        return f"{problem}. If it belongs to an uncased model, set lower: true.", False
    return None


def word_piece_conflict(vocab_file: str, *, lower: bool, special: Collection[str]) -> str | None:
    """Return how the tokenizer_config.json beside a vocabulary contradicts BERT's own rules for texts; else None.

    Args:
        vocab_file: word pieces.
        lower: whether texts are lower-cased; BERT then also removes accents.
        special: tokens that are found whole in a text.
    """
    known = settings_in(io.parent(vocab_file))
    more = [token for token in added_tokens(known) if token not in special]
    if known.get("strip_accents") not in (None, lower):
        return f"{'keeps' if lower else 'removes'} accents (strip_accents)"
    if known.get("tokenize_chinese_chars") is False:
        return "does not split Chinese into characters (tokenize_chinese_chars)"
    return f"finds {first_few(map(repr, more), 3)} whole in a text (added_tokens_decoder)" if more else None


def settings_in(folder: str) -> dict[str, Any]:
    """Return what tokenizer_config.json in a folder says, by which transformers reads texts; {} without one."""
    return _json(io.join(folder, SETTINGS))


def added_tokens(settings: Mapping[str, Any]) -> list[str]:
    """Return the tokens that a tokenizer_config.json adds to those of the model."""
    added = settings.get("added_tokens_decoder")
    tokens = added.values() if isinstance(added, dict) else ()
    return [str(token["content"]) for token in tokens if isinstance(token, dict) and "content" in token]


def _beside(folder: str) -> tuple[str, list[str]] | None:
    """Return (path of the vocabulary in a folder, its tokens by id); None if there is none."""
    path = io.join(folder, VOCABULARY)
    if io.isfile(path):
        return path, Vocabulary.read(path).tokens
    path = io.join(folder, DEFINITION)
    definition = _json(path)
    known = (definition.get("model") or {}).get("vocab") or {}
    ids = dict(known) if isinstance(known, dict) else {piece: number for number, (piece, *_) in enumerate(known)}
    ids |= {token["content"]: token["id"] for token in definition.get("added_tokens") or []}
    if not ids:
        return None
    tokens = [f"[unused id {number}]" for number in range(max(ids.values()) + 1)]
    for token, number in ids.items():
        tokens[number] = token
    return path, tokens


def _json(path: str) -> dict[str, Any]:
    if not io.isfile(path):
        return {}
    with io.open(path, encoding="utf-8") as file:
        try:
            found = json.load(file)
        except ValueError:
            return {}
    return found if isinstance(found, dict) else {}


def _labels_of_library(folder: str) -> list[str]:
    """Return the labels by class of a folder in Hugging Face format; [] if it names none."""
    names = _json(io.join(folder, CONFIG)).get("id2label") or {}
    return [str(names[number]) for number in sorted(names, key=int)] if all(map(str.isdecimal, names)) else []


def _lines(path: str) -> list[str]:
    with io.open(path, encoding="utf-8-sig", newline="") as file:
        return lines_of(file.read())
