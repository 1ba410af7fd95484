"""The work on blocks of raw files: done in this process, or (by subclasses) read from the results of an array job.

Everything else of a build uses the same code in both cases, so that the output is identical.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from xdpx.datasets.counting import RawCounts, count
from xdpx.datasets.raw_data import RawFile, made_of
from xdpx.datasets.sample_making import Made, Work
from xdpx.datasets.workers import Crew
from xdpx.loaders.base import Loader
from xdpx.tokenizers.base import Tokenizer


class BlockWork:
    """Work on blocks in this process and its workers."""

    def count(
        self,
        files: Iterable[RawFile],
        loader: Loader,
        tokenizer: Tokenizer | None,
        *,
        workers: int,
        skip_bad_lines: bool,
        of_words: Collection[str] | None = None,
    ) -> RawCounts:
        """Return the counts of tokens and labels in raw files; see `counting.count`."""
        return count(files, loader, tokenizer, workers=workers, skip_bad_lines=skip_bad_lines, of_words=of_words)

    def made_of(
        self,
        split: str,
        file: RawFile,
        crew: Crew[Work, Made],
        *,
        digests: Mapping[str, str],
        skip_bad_lines: bool,
        hashed: bool,
        keyed: bool,
    ) -> Iterator[Made]:
        """Yield the samples made of each block of a split's raw file, in order; see `raw_data.made_of`.

        Args:
            split: name of the split.
            file: its raw file.
            crew: the workers.
            digests: of the vocabulary and the labels that are used.
            skip_bad_lines: skip lines that cannot be used.
            hashed: whether to compute hashes of records.
            keyed: whether to compute keys of texts.
        """
        del split, digests
        return made_of(file, crew, skip_bad_lines=skip_bad_lines, hashed=hashed, keyed=keyed)
