"""Checks of tokenized texts: no tokens, unknown tokens, tokens as long as texts, tokens beyond max_len."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdpx.datasets.findings.finding import Finding, Severity
from xdpx.datasets.sample_making import Counts

FEWEST_TOKENS = 100
"""Minimum number of tokens for these checks."""

HALF_UNKNOWN = 0.5
MANY_UNKNOWN = 0.1
MANY_NEW = 0.2
"""Shares of unknown tokens: useless; too many for a given vocabulary; too many for one that was counted."""

LONG = 12.0
"""Mean characters per token, including spaces, that is too long: languages with spaces have 4 to 9."""

NEARLY_ONE = 1.2
LONG_FOR_ONE = 8.0
"""Maximum tokens per text, and minimum characters per token, if most texts have become a single token."""

MANY_CUT = 0.2
"""Share of tokens beyond `max_len` from which it should be raised."""

MANY_EMPTY = 0.01

MANY_WINDOWS = 20
"""Mean number of windows of a text from which it is told: even a long document has fewer."""

UNTRAINED = 0.02
"""Share of unknown tokens in held-out texts from which an untrained unknown token is reported."""


@dataclass
class Tally:
    """Statistics of tokenized texts: numbers of texts, characters and tokens, and the following.

    Attributes:
        unknown: number of unknown tokens.
        cut: number of tokens beyond `max_len`, which are dropped.
        empty: number of samples with a text without tokens.
        windows: number of samples that continue a text too long for one.
        longest: length of the longest sample in tokens, before it was cut.
        max_len: maximum length of a sample in tokens.
    """

    texts: int = 0
    characters: int = 0
    tokens: int = 0
    unknown: int = 0
    cut: int = 0
    empty: int = 0
    longest: int = 0
    max_len: int = 0
    windows: int = 0

    @classmethod
    def of(cls, counts: Counts, *, max_len: int) -> Tally:
        """Return the statistics of texts that were counted."""
        cut = 0 if counts.windows else counts.cut
        known = counts.texts, counts.characters, counts.tokens, counts.unknown, cut, counts.empty, counts.longest
        return cls(*known, max_len, counts.windows)

    @property
    def unknown_share(self) -> float:
        """Share of the tokens that are unknown, 0 to 1."""
        return self.unknown / self.tokens if self.tokens else 0.0


def each(split: str, tally: Tally, *, trained: bool, ready: bool) -> Iterator[Finding]:
    """Yield the findings about the texts of one split; arguments as of `tokens`."""
    yield from tokens(split, tally, trained=trained, ready=ready)
    yield from empty_texts(split, tally)
    yield from cut_tokens(split, tally)
    yield from joined_sentences(split, tally)


def tokens(split: str, tally: Tally, *, trained: bool, ready: bool) -> Iterator[Finding]:
    """Yield findings about texts without tokens, with unknown tokens, or that the tokenizer does not split.

    Args:
        split: the split.
        tally: of its texts.
        trained: whether it is training data.
        ready: whether the vocabulary was given, rather than counted in these data.
    """
    if tally.texts and not tally.tokens:
        problem = f"none of its {tally.texts:,} texts has a token: lines are blank, or a wrong column is read."
        yield Finding("no_text", "fault" if trained else "warning", split, problem, "Look at the raw file.")
        return
    whole = tally.tokens <= NEARLY_ONE * tally.texts and tally.characters >= LONG_FOR_ONE * tally.tokens
    if tally.tokens >= FEWEST_TOKENS and (whole or tally.characters >= LONG * tally.tokens):
        length = tally.characters / tally.tokens
        problem = f"tokens have {length:.0f} characters on average: texts are not split into words."
        remedy = "For text without spaces, such as Chinese, use tokenizer: char_zh, or bert with its vocab_file."
        remedy = remedy if trained else "Split them as the training texts are split."
        yield Finding("long_tokens", "warning", split, problem, remedy)
    share = tally.unknown_share
    if tally.tokens < FEWEST_TOKENS or share < (MANY_UNKNOWN if ready else MANY_NEW):
        return
    useless = ready and trained and share >= HALF_UNKNOWN
    if ready:
        remedy = "Is it for another language, or cased while lower is true?"
    else:
        remedy = "Look at threshold and nwords." if trained else "Is it the same kind of text as in training?"
    problem = f"{share:.1%} of the tokens are not in the vocabulary."
    yield Finding("unknown_tokens", "fault" if useless else "warning", split, problem, remedy)


def empty_texts(split: str, tally: Tally) -> Iterator[Finding]:
    """Yield a finding about texts without tokens, if others have some."""
    if not tally.tokens or not tally.empty:
        return
    severity: Severity = "warning" if tally.empty >= MANY_EMPTY * tally.texts else "note"
    problem = f"{tally.empty:,} of {tally.texts:,} texts have no token: they are blank, or all in them is removed."
    yield Finding("no_text", severity, split, problem, "Drop these rows, or look at rm_punc and the column.")


def cut_tokens(split: str, tally: Tally) -> Iterator[Finding]:
    """Yield a finding if `max_len` cuts off a large part of the texts."""
    if tally.tokens >= FEWEST_TOKENS and tally.cut >= MANY_CUT * tally.tokens:
        problem = f"{tally.cut / tally.tokens:.0%} of the tokens are beyond max_len {tally.max_len:,} and are cut off."
        remedy = f"Raise max_len; the longest text has {tally.longest:,}."
        yield Finding("cut_tokens", "warning", split, problem, remedy)


def joined_sentences(split: str, tally: Tally) -> Iterator[Finding]:
    """Yield a finding if the texts of a tagged file are so long that they are probably many sentences each."""
    if tally.texts and tally.windows >= MANY_WINDOWS * tally.texts:
        length = tally.tokens / tally.texts
        problem = f"a text has {length:,.0f} tokens on average, and is read in windows of {tally.max_len:,}."
        remedy = "Put a blank line between sentences, or raise max_len if texts are that long."
        yield Finding("giant_text", "warning", split, problem, remedy)


def untrained_unknown(tallies: Mapping[str, Tally], *, trained: Mapping[str, bool]) -> Iterator[Finding]:
    """Yield findings about held-out splits with unknown tokens, if training data have none to train it."""
    training = [split for split in tallies if trained[split]]
    if not training or any(tallies[split].unknown for split in training):
        return
    for split, tally in tallies.items():
        if not trained[split] and tally.unknown_share >= UNTRAINED:
            share = f"{tally.unknown_share:.1%}"
            problem = f"{share} of the tokens are unknown, but none in training, where that token would be learned."
            remedy = "threshold: 1 makes words that were seen once unknown."
            yield Finding("untrained_unknown", "note", split, problem, remedy)
