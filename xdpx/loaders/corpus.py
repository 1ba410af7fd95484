"""Loaders of corpora for language models: documents of sentences, optionally segmented into words, and dialogues."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.loaders import marks
from xdpx.loaders.base import Blocks, Loader, Merger, Records
from xdpx.loaders.parsers.base import BadLine, Row, Rows

BreakMode = Literal["none", "none_doc", "complete", "complete_doc", "eos"]

FIRST = 1
"""Number of the first message of a session."""
NUM_SPECIAL = 3
"""Tokens of `max_len` that are reserved for special ones, however many the processor adds."""


class CorpusLoader(Loader):
    """Lines are sentences, blank lines separate documents; they are joined into blocks of max_len - 3 tokens."""

    num_targets: ClassVar[int] = 0

    class Parameters(Loader.Parameters):
        """Keys of the corpus loader."""

        parser: str = param("none", doc="How files are split into columns.", registry="parser")
        break_mode: BreakMode = param(
            "complete",
            doc="Where blocks end: none (anywhere), complete (whole sentences), both also with _doc (never across "
            "documents), or eos (a sentence is a block).",
        )

    def merger(self, max_len: int) -> Merger:
        """Return a merger that joins sentences into blocks."""
        return SentenceMerger(self.parameters.break_mode, max(max_len - self.reserved, 1), reserved=self.reserved)

    @property
    def reserved(self) -> int:
        """Number of tokens of `max_len` that are reserved, however many the processor adds."""
        return NUM_SPECIAL


class SentenceMerger(Merger):
    """Joins sentences into blocks of at most `size` tokens. A longer sentence is cut into blocks of `size`."""

    def __init__(self, break_mode: BreakMode, size: int, *, reserved: int = NUM_SPECIAL) -> None:
        self._size = size
        self._reserved = reserved
        self._whole = break_mode.startswith("complete")
        self._within_document = break_mode.endswith("_doc")
        self._single = break_mode == "eos"
        self._anywhere = break_mode.startswith("none")
        self._rest = np.zeros(0, np.int32)
        # `_rest` always ends with a whole sentence, because `feed` takes whole sentences.

    def feed(self, texts: Blocks, borders: NDArray[np.bool_]) -> Blocks:
        """Append sentences to the unfinished block; return complete blocks, and keep the rest."""
        values = np.concatenate([self._rest, texts.values])
        ends = (texts.offsets[1:] + len(self._rest)).tolist()
        cuts = self._cuts(len(self._rest), ends, borders.tolist())
        self._rest = values[cuts[-1] :]
        return Blocks(values[: cuts[-1]], np.array(cuts, np.int64))

    def finish(self) -> Blocks:
        """Return the unfinished block, if there is one."""
        rest, self._rest = self._rest, self._rest[:0]
        return Blocks(rest, np.array([0, len(rest)] if len(rest) else [0], np.int64))

    def wanted(self, texts: Blocks, num_special: int) -> NDArray[np.int64]:
        """Return the smallest `max_len` at which each sentence is not cut; 0 if blocks may end anywhere."""
        whole = super().wanted(texts, max(num_special, self._reserved))
        return np.zeros_like(whole) if self._anywhere else whole

    def _cuts(self, last: int, ends: list[int], borders: list[bool]) -> list[int]:
        """Return the borders of blocks, starting with 0. `last` is the end of the sentence before the first one."""
        cuts = [0]
        start = 0
        for end, border in zip(ends, borders, strict=True):
            if end - start > self._size:
                if self._whole and last > start:
                    cuts.append(last)
                    start = last
                while end - start > self._size:
                    start += self._size
                    cuts.append(start)
            if end > start and (self._single or (border and self._within_document)):
                cuts.append(end)
                start = end
            last = end
        return cuts


class CorpusMixLoader(CorpusLoader):
    """As `corpus`, for segmented text: words are tokenized one by one, so that they can be masked as a whole.

    For languages without spaces; a word of several characters is then predicted as a whole.

    Source: Cui et al., "Pre-Training with Whole Word Masking for Chinese BERT", arXiv 1906.08101, section 2.1.
    """

    marks_words: ClassVar[bool] = True

    class Parameters(CorpusLoader.Parameters):
        """Keys of the corpus_mix loader."""

        min_word_len: int = param(1, ge=1, doc="Blocks of fewer words are dropped.")

    def merger(self, max_len: int) -> Merger:
        """Return a merger that joins sentences into blocks, and drops blocks with few words."""
        return LongEnough(super().merger(max_len), self.parameters.min_word_len)


class CorpusMixPromptLoader(CorpusMixLoader):
    """As `corpus_mix`, in blocks that leave room for the prompt of `processor: bert_cl_single_prompt`."""

    class Parameters(CorpusMixLoader.Parameters):
        """Keys of the corpus_mix_prompt loader."""

        prompt_length: int = param(20, ge=1, doc="Tokens of a block that are reserved for a prompt in front of it.")

    @property
    def reserved(self) -> int:
        """Number of tokens of `max_len` that are reserved, including those of the prompt."""
        return super().reserved + int(self.parameters.prompt_length)


class LongEnough(Merger):
    """Wraps a merger and drops blocks with few words. Without word marks, every token counts as a word."""

    def __init__(self, inner: Merger, fewest: int) -> None:
        self._inner = inner
        self._fewest = fewest

    def feed(self, texts: Blocks, borders: NDArray[np.bool_]) -> Blocks:
        """Add texts, and return the blocks that are complete and long enough."""
        return self._long_enough(self._inner.feed(texts, borders))

    def finish(self) -> Blocks:
        """Return the remaining blocks at the end of the file that are long enough."""
        return self._long_enough(self._inner.finish())

    def wanted(self, texts: Blocks, num_special: int) -> NDArray[np.int64]:
        """Return the smallest `max_len` at which each text is not cut, (N,)."""
        return self._inner.wanted(texts, num_special)

    def _long_enough(self, blocks: Blocks) -> Blocks:
        kept = np.diff(marks.words_before(blocks.values)[blocks.offsets]) >= self._fewest
        lengths = np.diff(blocks.offsets)
        offsets = np.concatenate([[0], np.cumsum(lengths[kept])])
        return Blocks(blocks.values[np.repeat(kept, lengths)], offsets)


class SessionCorpusLoader(Loader):
    """Columns: msg_no, sender, text. A number that is not above the last one, or a blank line, begins a session.

    Consecutive messages of one sender are joined, up to `max_consecutive` of them. Numbers and senders are compared
    within a block of rows as it is read; where one begins with a session, its number 1 tells, or a blank line.
    """

    num_targets: ClassVar[int] = 0

    class Parameters(Loader.Parameters):
        """Keys of the session_corpus loader."""

        min_session_size: int = param(8, ge=2, doc="Sessions of fewer messages are dropped.")
        max_consecutive: int = param(2, ge=1, doc="Maximum number of lines of one sender that are joined.")

    @property
    def num_sections(self) -> int:
        """Number of columns of a line."""
        return len(self.column_names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of a line."""
        return ("msg_no", "sender", "text")

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Return the messages of a block, with an empty text before each session."""
        del labelled
        session = _Session(self.parameters.max_consecutive)
        bad = list(rows.bad)
        for line, row in zip(rows.lines, rows.rows, strict=True):
            problem = session.add(line, row)
            if problem:
                bad.append(BadLine(line, problem))
        return Records({"text": session.texts}, None, session.lines, sorted(bad))

    def merger(self, max_len: int) -> Merger:
        """Return a merger that joins the messages of each session."""
        del max_len
        return SessionMerger(self.parameters.min_session_size)


class _Session:
    """Collects the messages of a block, with borders of sessions as empty texts."""

    def __init__(self, max_consecutive: int) -> None:
        self.texts: list[str] = []
        self.lines: list[int] = []
        self._most = max_consecutive
        self._number: int | None = None
        self._sender = ""
        self._joined = 0

    def add(self, line: int, row: Row) -> str | None:
        """Add a row, and return what is wrong with it, or None."""
        if row == [""]:
            self._begin(line)
            return None
        if len(row) != 3:
            return f"has {len(row)} column{'s' * (len(row) != 1)}, not 3: msg_no, sender, text"
        number, sender, text = row
        if not number.strip().isdecimal():
            return f"has '{number}' for the number of a message"
        # Of rows before this block nothing is known.
        before = self._number if self.texts or line == 1 else FIRST
        if before is not None and int(number) <= before:
            self._begin(line)
        self._number = int(number)
        if sender == self._sender and 0 < self._joined < self._most:
            self.texts[-1] = f"{self.texts[-1]} {text}"
            self._joined += 1
        elif text.strip():
            self._append(line, text)
            self._sender, self._joined = sender, 1
        return None

    def _begin(self, line: int) -> None:
        self._append(line, "")
        self._number, self._sender, self._joined = None, "", 0

    def _append(self, line: int, text: str) -> None:
        self.texts.append(text)
        self.lines.append(line)


class SessionMerger(Merger):
    """Joins the messages between two borders. Sessions with too few messages are dropped."""

    def __init__(self, fewest: int) -> None:
        self._fewest = fewest
        self._messages: list[NDArray[np.int32]] = []

    def feed(self, texts: Blocks, borders: NDArray[np.bool_]) -> Blocks:
        """Add messages, and return the sessions that have ended."""
        ended = []
        for index, border in enumerate(borders.tolist()):
            message = texts.values[texts.offsets[index] : texts.offsets[index + 1]]
            if border:
                ended += self._end()
            elif len(message):
                self._messages.append(message)
        return _blocks(ended)

    def finish(self) -> Blocks:
        """Return the last session, if it is long enough."""
        return _blocks(self._end())

    def _end(self) -> list[NDArray[np.int32]]:
        messages, self._messages = self._messages, []
        return [np.concatenate(messages)] if len(messages) >= self._fewest else []


def _blocks(sessions: list[NDArray[np.int32]]) -> Blocks:
    values = np.concatenate(sessions) if sessions else np.zeros(0, np.int32)
    return Blocks(values, np.cumsum([0, *map(len, sessions)]))
