"""Find where samples of an input come from: the file and line, and the original texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xdpx.config.faults import ConfigError
from xdpx.datasets.data_files import splits
from xdpx.datasets.raw_data import RawChunk
from xdpx.datasets.store import Store
from xdpx.inference.plan import InferencePlan, Input
from xdpx.inference.predictor import Predictor
from xdpx.loaders import marks
from xdpx.logger import log
from xdpx.processors.samples import Ragged, Samples
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io
from xdpx.utils.commit import read_manifest

MOST_CHARACTERS = 2000
"""Most characters of one text that are kept."""


class SampleOrigin(NamedTuple):
    """Where a sample comes from.

    Attributes:
        place: `file:line`; for a store whose raw file is missing or changed, `file: sample N`, counted from 0.
        texts: as they stand in the raw file; if there is only the store, the tokens of the sample joined by spaces.
    """

    place: str
    texts: list[str]


def origins(
    predictor: Predictor, source: Input, wanted: Sequence[int], *, ignore_novel_target: bool = False
) -> dict[int, SampleOrigin]:
    """Return the origin of each wanted sample. Reads the raw file again up to the last of them, in bounded memory.

    Args:
        predictor: reads raw files.
        source: the input that was scored.
        wanted: indices of samples within it, from 0.
        ignore_novel_target: the value it was scored with.
    """
    if not len(wanted):
        return {}
    if not source.is_store:
        chunks = predictor.raw_stream(source, ignore_novel_target=ignore_novel_target, skip_bad_lines=True)
        return _named(source.path, _numbered(chunks), set(wanted), predictor)
    store = Store.open(source.path)
    raw = _raw_file(predictor.plan, source)
    if raw is not None:
        try:
            chunks = predictor.raw_stream(Input(raw, raw, is_store=False), classes=False, skip_bad_lines=True)
            found = _named(raw, _aligned(chunks, store), set(wanted), predictor)
        except (ConfigError, OSError) as error:
            log.info(f"{source.name}: {raw} cannot be read as it was preprocessed: {error}")
            found = {}
        if len(found) == len(set(wanted)):
            return found
        log.info(f"{source.name}: {raw} is no longer what was preprocessed, so texts are shown as tokens")
    return {index: _decoded(store, index, source.path, predictor.vocabulary) for index in wanted}


def _raw_file(plan: InferencePlan, source: Input) -> str | None:
    """Return the raw file that a store was made from, if it is on this machine or on the same server as the data."""
    manifest = read_manifest(io.parent(source.path), io.name(source.path).rpartition(".")[0])
    facts = manifest.facts.get("source") if manifest is not None else None
    path = facts.get("path") if isinstance(facts, Mapping) else None
    if path is None and plan.prepro is not None and io.parent(source.path) == plan.data_dir.rstrip("/"):
        try:
            path = splits(plan.prepro.values["data_source"], plan.prepro.values["data_files"]).get(source.name)
        except ConfigError:
            return None
    if not isinstance(path, str) or plan.prepro is None or plan.joins_lines:
        return None
    near = io.islocal(path) or path.split("/")[:3] == plan.data_dir.split("/")[:3]  # never an address elsewhere
    return path if near and io.isfile(path) else None


Numbered = tuple[int, RawChunk, int]
"""Index of a sample, the chunk that holds it, and its position in the chunk."""


def _numbered(chunks: Iterator[RawChunk]) -> Iterator[Numbered]:
    for chunk in chunks:
        for place, index in enumerate(chunk.samples.ids.tolist()):
            yield index, chunk, place


def _aligned(chunks: Iterator[RawChunk], store: Store) -> Iterator[Numbered]:
    """Yield the samples of a raw file with their index in the store, which may lack some: duplicates, bad lines.

    A sample is yielded only if it equals the one that the store holds at that index.
    """
    reached = 0
    for chunk in chunks:
        count = len(chunk.samples)
        ahead = store.take(np.arange(reached, min(reached + count, len(store))))
        if len(ahead) == count and _are_same(chunk.samples, ahead):
            for place in range(count):
                yield reached + place, chunk, place
            reached += count
            continue
        for place in range(count):
            if reached >= len(store):
                return
            if _are_same(chunk.samples.take(np.array([place])), store.take(np.array([reached]))):
                yield reached, chunk, place
                reached += 1


def _are_same(left: Samples, right: Samples) -> bool:
    return all(_is_same(left.columns[name], right.columns[name]) for name in left.columns if name in right.columns)


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, Ragged) and isinstance(right, Ragged):
        return np.array_equal(left.lengths, right.lengths) and np.array_equal(
            left.values[left.offsets[0] : left.offsets[-1]], right.values[right.offsets[0] : right.offsets[-1]]
        )
    return not isinstance(left, Ragged) and not isinstance(right, Ragged) and np.array_equal(left, right)


def _named(path: str, samples: Iterator[Numbered], wanted: set[int], predictor: Predictor) -> dict[int, SampleOrigin]:
    found: dict[int, SampleOrigin] = {}
    last = max(wanted)
    for index, chunk, place in samples:
        if index in wanted and len(chunk.kept):
            row = int(chunk.kept[place])
            cells = chunk.rows[row][:-1] if chunk.labelled else chunk.rows[row]
            line = chunk.lines[row] if len(chunk.lines) else row + 1
            found[index] = SampleOrigin(f"{path}:{line}", [cell[:MOST_CHARACTERS] for cell in cells])
        if index >= last:
            break
    return found


def _decoded(store: Store, index: int, path: str, vocabulary: Vocabulary | None) -> SampleOrigin:
    """Return an origin with the tokens of a sample in place of its texts; ids the vocabulary lacks as unknown."""
    texts = []
    for name, column in store.take(np.array([index])).columns.items():
        if isinstance(column, Ragged) and "tokens" in name and vocabulary is not None:
            known = dict(enumerate(vocabulary.tokens))
            words = (known.get(token, vocabulary.unk_word) for token in marks.plain(column.row(0)).tolist())
            texts.append(" ".join(words)[:MOST_CHARACTERS])
    return SampleOrigin(f"{path}: sample {index}", texts)
