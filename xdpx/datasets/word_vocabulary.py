"""`word_vocab.txt`: the vocabulary of the whole words of segmented text, in addition to that of tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from xdpx.config.faults import refusal
from xdpx.datasets.block_work import BlockWork
from xdpx.datasets.raw_data import RawFile
from xdpx.loaders.base import Loader
from xdpx.logger import log
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.tokenizers.words import WholeWords

FILE = "word_vocab.txt"


def word_encoder(loader: Loader, vocabulary: Vocabulary | None) -> Encoder | None:
    """Return the encoder of words, if the loader has words; else None.

    Raises:
        ConfigError: the loader has words, but there is no vocabulary of them.
    """
    if not loader.gives_words:
        return None
    if vocabulary is None:
        problem, remedy = "is true, but the data have no word_vocab.txt.", "Preprocess with processor: bert_single_mix."
        raise refusal("with_words", problem, remedy)
    return Encoder(_cutter(loader), vocabulary)


def gather_words(
    known: Any,
    files: Sequence[RawFile],
    loader: Loader,
    *,
    work: BlockWork,
    workers: int,
    of_words: Collection[str],
) -> Vocabulary | None:
    """Return the vocabulary of words: read from `word_vocab_file`, or else counted in the raw files.

    None if the loader has no words, or the processor does not use them.

    Args:
        known: parameters of the processor.
        files: all raw files.
        loader: the configured loader.
        work: counts the words.
        workers: number of processes.
        of_words: paths of the files whose words are counted.

    Raises:
        ConfigError: the configured file is not a vocabulary.
    """
    if not loader.gives_words or not hasattr(known, "word_vocab_file"):
        return None
    special = (known.pad_word, known.unk_word)
    if known.word_vocab_file is not None:
        return Vocabulary.read(known.word_vocab_file, pad_word=special[0], unk_word=special[1])
    skip = loader.parameters.skip_bad_lines
    counted = [file for file in files if file.path in of_words]
    seen = work.count(counted, loader, _cutter(loader), workers=workers, skip_bad_lines=skip)
    found = Vocabulary.build(
        seen.tokens, special_words=special, threshold=known.min_word_count - 1, max_size=known.max_word_vocab
    )
    covered = sum(times for word, times in seen.tokens.items() if word in found)
    share = covered / max(sum(seen.tokens.values()), 1)
    log.info(f"Words: {len(found):,}; they cover {share:.2%} of the text")
    return found


def _cutter(loader: Loader) -> WholeWords:
    return WholeWords(WholeWords.Parameters(lower=loader.parameters.lower))
