"""Samples straight from a raw file, as prediction reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.raw_data import RawChunk, stream
from xdpx.datasets.sample_making import Counts
from xdpx.loaders.corpus import CorpusLoader
from xdpx.loaders.parsers.csv import CSVParser
from xdpx.loaders.parsers.lines import LineParser
from xdpx.loaders.texts import SingleLoader
from xdpx.processors.causal_lm import CausalLMProcessor
from xdpx.processors.texts import SingleProcessor
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.target_map import TargetMap
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.tokenizers.words import SpaceTokenizer

VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "a", "b"])


def chunks(path: Path, content: str, **options: object) -> list[RawChunk]:
    path.write_text(content)
    return list(
        stream(
            str(path),
            parser=CSVParser(CSVParser.Parameters()),
            loader=SingleLoader(SingleLoader.Parameters(tokenizer="space")),
            encoder=Encoder(SpaceTokenizer(SpaceTokenizer.Parameters()), VOCABULARY),
            processor=SingleProcessor(SingleProcessor.Parameters(max_len=9), vocabulary=VOCABULARY),
            **options,  # type: ignore[arg-type]
        )
    )


def test_rows_stand_beside_their_samples(tmp_path: Path) -> None:
    (chunk,) = chunks(tmp_path / "x.tsv", "A b\t1\nb\t0\n", target_map=TargetMap(["0", "1"]))
    assert (chunk.rows, chunk.labelled, chunk.header) == ([["A b", "1"], ["b", "0"]], True, None)
    assert chunk.samples.numbers("target").tolist() == [1, 0]
    assert chunk.kept.tolist() == [0, 1]


def test_a_file_without_labels_has_samples_without_targets(tmp_path: Path) -> None:
    (chunk,) = chunks(tmp_path / "x.tsv", "a\n\nb\n", target_map=TargetMap(["0"]))
    assert (chunk.labelled, "target" in chunk.samples, len(chunk.samples)) == (False, False, 3)


def test_labels_are_not_looked_at_without_a_map(tmp_path: Path) -> None:
    (chunk,) = chunks(tmp_path / "x.tsv", "a\twhatever\n")
    assert (chunk.labelled, "target" in chunk.samples) == (True, False)


def test_small_chunks_hold_the_same_rows_and_ids(tmp_path: Path) -> None:
    content = "".join(f"a b{' b' * (number % 3)}\tx\n" if number % 4 else "bad\n" for number in range(50))
    content = "a\tx\n" + content
    counts = Counts()
    parts = chunks(tmp_path / "x.tsv", content, rows_per_chunk=7, skip_bad_lines=True, counts=counts)
    (whole,) = chunks(tmp_path / "x.tsv", content, skip_bad_lines=True)
    assert [row for part in parts for row in part.rows] == whole.rows
    assert np.concatenate([part.samples.ids for part in parts]).tolist() == whole.samples.ids.tolist()
    starts = np.cumsum([0, *(len(part.rows) for part in parts)])
    kept = [index + start for part, start in zip(parts, starts.tolist(), strict=False) for index in part.kept.tolist()]
    assert kept == whole.kept.tolist()
    assert (counts.num_bad, counts.lines, len(kept)) == (13, 51, 38)


def test_no_block_of_joined_lines_is_lost_when_there_are_more_lines_than_a_chunk_has_rows(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("a b a\n" * 50)
    found = stream(
        str(path),
        parser=LineParser(LineParser.Parameters()),
        loader=CorpusLoader(CorpusLoader.Parameters(tokenizer="space", break_mode="none")),
        encoder=Encoder(SpaceTokenizer(SpaceTokenizer.Parameters()), VOCABULARY),
        processor=CausalLMProcessor(CausalLMProcessor.Parameters(max_len=13), vocabulary=VOCABULARY),
        rows_per_chunk=7,
    )
    samples = [chunk.samples for chunk in found]
    assert sum(int(each.lengths.sum()) for each in samples) == 150
    assert np.concatenate([each.ids for each in samples]).tolist() == list(range(15))


def test_a_bad_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.tsv: 1 fault\n  .*x\.tsv:2: has 1 column, not 2"):
        chunks(tmp_path / "x.tsv", "a\tx\nbad\n")
