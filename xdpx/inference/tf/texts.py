"""String inputs of a SavedModel: the graph splits and encodes words as a white-space tokenizer does in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xdpx.inference.transformers_folder import tokenizer_of
from xdpx.logger import log
from xdpx.processors.samples import Samples
from xdpx.tokenizers.characters import HIDDEN_SPACE, WHITE_SPACE, fold, is_punctuation, ranges
from xdpx.tokenizers.words import SpaceTokenizer, WholeWords

if TYPE_CHECKING:
    from xdpx.inference.formats import Exportable

TEXT = "text"
"""Name of the signature that takes strings."""
BLANK = " "
SOME_WORDS = 200
Numbering = Callable[[Any], tuple[Any, Any]]
ODD = (
    "", " ", "a", "\u3000a\x85b\x1cc ", "\u00c9t\u00e9 \u00dcBER n\u0303", "\u4e2d\u6587\uff0c\u5b57",
    "\U0001f600 \U00020000", "a\u200bb x\u00a0y", "(one-two)  'three'!",
)  # fmt: skip
"""Texts on which both encodings are compared: empty, white space, accents, ideographs, code points over 16 bits."""
PLAIN: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("tokens", "mask"): ("text",),
    ("tokens1", "mask1", "tokens2", "mask2"): ("text_a", "text_b"),
}
"""Inputs of networks that read words -> names of their texts in the signature."""


def signature(tf: ModuleType, exportable: Exportable, held: Any, length: int | None) -> dict[str, Any]:
    """Return {name: signature} for string inputs; {}, and a log line with the reason, if it is not possible.

    Args:
        tf: the package.
        exportable: the network to write.
        held: module that will own the tables and the function; has `call`, which takes ids, and `words_file`.
        length: of every text, in tokens; None for that of the longest in the batch.
    """
    names, plan = PLAIN.get(tuple(exportable.inputs)), exportable.plan
    tokenizer: Any = tokenizer_of(plan.prepro, plan.resource_folder)
    reason = _hindrance(exportable, tokenizer)
    if not reason:
        numbered = _numbering(tf, exportable, held, tokenizer, length)
        if not _agrees(exportable, tokenizer, numbered):
            reason = "some texts would get other token ids than in the run"
    if reason or names is None:
        log.info(f"no signature for strings: {reason}; use the one for token ids")
        return {}

    def call(*texts: Any) -> dict[str, Any]:
        found: dict[str, Any] = held.call(*(each for text in texts for each in numbered(text)))
        return found

    specs = [tf.TensorSpec([None], tf.string, name=name) for name in names]
    held.call_texts = tf.function(call, input_signature=specs, autograph=False)
    return {TEXT: held.call_texts}


def _hindrance(exportable: Exportable, tokenizer: object) -> str:
    """Return why the graph cannot encode strings; '' if it can."""
    vocabulary = exportable.processor.vocabulary
    if tuple(exportable.inputs) not in PLAIN or vocabulary is None:
        return "this network takes other inputs than words"
    if type(tokenizer) not in {SpaceTokenizer, WholeWords}:
        return f"{type(tokenizer).__name__} cannot be written in TensorFlow"
    if any(not word or set(word) & {"\n", "\r"} for word in vocabulary.tokens):
        return "a word of the vocabulary contains a line break"
    return ""


def _numbering(tf: ModuleType, exportable: Exportable, held: Any, tokenizer: Any, length: int | None) -> Numbering:
    """Return a function from strings (B,) to ids and mask, (B, T) each; its tables are stored in `held`."""
    known, vocabulary = exportable.processor.parameters, exportable.processor.vocabulary
    unknown = int(vocabulary.indices([vocabulary.unk_word])[0]) if vocabulary else 0
    index = tf.lookup.TextFileIndex
    filled = tf.lookup.TextFileInitializer(held.words_file, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
    held.words = tf.lookup.StaticHashTable(filled, default_value=unknown)
    changed, gone = _folding(tokenizer)
    entries = tf.lookup.KeyValueTensorInitializer([*changed, BLANK], [*changed.values(), BLANK])
    held.characters = tf.lookup.StaticHashTable(entries, default_value="")
    first, last = ([each[side] for each in gone] for side in (0, 1))

    def folded(texts: Any) -> Any:
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        at = tf.searchsorted(first, codes.flat_values, side="right") - 1
        dropped = (at >= 0) & (codes.flat_values <= tf.gather(last, tf.maximum(at, 0)))
        codes = tf.ragged.boolean_mask(codes, codes.with_flat_values(~dropped))
        characters = tf.strings.unicode_encode(codes.flat_values[:, None], "UTF-8")
        new = held.characters.lookup(characters)
        return tf.strings.reduce_join(codes.with_flat_values(tf.where(new == "", characters, new)), axis=-1)

    def numbered(texts: Any) -> tuple[Any, Any]:
        ids = held.words.lookup(tf.strings.split(tf.strings.strip(folded(texts)))[:, : known.max_len])
        # For a text without words, the processor inserts one unknown word.
        lacking = tf.cast(ids.row_lengths() == 0, tf.int64)
        one = tf.fill([tf.reduce_sum(lacking)], tf.constant(unknown, tf.int64))
        ids = tf.concat([ids, tf.RaggedTensor.from_row_lengths(one, lacking)], axis=1)
        shape = [None, length] if length is not None else None
        mask = tf.cast(tf.ones_like(ids), tf.bool).to_tensor(False, shape=shape)
        pad_index = exportable.processor.pad_index
        wider = [[0, 0], [0, tf.maximum(known.min_len - tf.shape(mask)[1], 0)]]
        return tf.pad(ids.to_tensor(pad_index, shape=shape), wider, constant_values=pad_index), tf.pad(mask, wider)

    return numbered


def _agrees(exportable: Exportable, tokenizer: Any, numbered: Numbering) -> bool:
    """Return whether difficult texts get the same ids and mask as in the run."""
    import numpy as np

    processor: Any = exportable.processor
    words = " ".join(processor.vocabulary.tokens[:SOME_WORDS])
    texts = [*ODD, words, words.title(), f"{words} " * processor.parameters.max_len]
    for text in texts:
        ids = tokenizer.encode([text], processor.vocabulary)[0]
        sample = processor.numerize(dict.fromkeys(processor.text_fields, ids), None)
        if sample is None:  # the run skips such a text
            continue
        batch = processor.collate(Samples.from_dicts([sample], processor.columns(labelled=False)))["net_input"]
        for wanted, found in zip(list(batch.values())[:2], numbered([text]), strict=True):
            # A fixed length has more padding.
            if not np.array_equal(np.asarray(wanted), found.numpy()[:, : wanted.shape[1]]):
                return False
    return True


def _folding(tokenizer: Any) -> tuple[dict[str, str], list[tuple[int, int]]]:
    """Return {character: replacement} of a tokenizer, and the sorted ranges of code points that it drops."""
    lower, plain = tokenizer.parameters.lower, isinstance(tokenizer, SpaceTokenizer)
    white = {chr(code) for first, last in ranges(WHITE_SPACE + HIDDEN_SPACE) for code in range(first, last + 1)}
    changed: dict[str, str] = {}
    gone: list[tuple[int, int]] = [(0, 0)] if plain else [(-1, -1)]
    for code in range(1, sys.maxunicode + 1):
        character = chr(code)
        if character in white or (plain and tokenizer.parameters.rm_punc and is_punctuation(character)):
            new = BLANK
        elif plain:
            new = fold(character, lower=lower)
        else:
            new = character.lower() if lower else character
        if not new:
            gone[-1:] = [(gone[-1][0], code)] if gone[-1][1] == code - 1 else [gone[-1], (code, code)]
        elif new != character:
            changed[character] = new
    return changed, gone
