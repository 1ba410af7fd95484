"""Where the work on blocks of raw files is done: here and now, or in the tasks of an array job, whose results are read.

Everything else of a build goes through the same code in both cases, so that the same bytes come out.
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
    """The work on blocks, done in this process and its workers."""

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
        """Return how often each token and each label stands in some raw files; see `counting.count`."""
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
        """Return what becomes of each block of the raw file of a split, in order; see `raw_data.made_of`.

        Args:
            split: its name.
            file: its raw file.
            crew: does the work.
            digests: of the vocabulary and the labels that it is done with.
            skip_bad_lines: pass over lines that cannot be used.
            hashed: whether hashes of records are wanted.
            keyed: whether keys of texts are wanted.
        """
        del split, digests
        return made_of(file, crew, skip_bad_lines=skip_bad_lines, hashed=hashed, keyed=keyed)
