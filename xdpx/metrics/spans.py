"""Metrics of spans of text: entities marked by tags, and answers to questions."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from xdpx.metrics.classes import ratio

OUTSIDE, INSIDE = "o", "i"
LETTERS = {"o": OUTSIDE, "b": "b", "i": INSIDE, "m": INSIDE, "e": "e", "l": "e", "s": "s", "u": "s", "w": "s"}
"""What the letters mean: those of BIO and BIOES; M is inside, L the end, U and W an entity of one token."""
OUTSIDES = frozenset({"", "other", "outside"})
"""Tags that mean O, in lower case."""
SCHEMES = tuple(map(frozenset, ("oiebs", "obmes", "obilu", "obmew")))
"""The letters that are used together, with types behind them or without any."""
TYPED = re.compile(r"([a-z])[-_](.*)", re.IGNORECASE | re.DOTALL)
ARTICLES = re.compile(r"\b(a|an|the)\b")
CHARACTERS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff"
CHARACTER = re.compile(f"[{CHARACTERS}]")
PIECES = re.compile(f"[{CHARACTERS}]|[^\\s{CHARACTERS}]+")
MARKS = str.maketrans("", "", string.punctuation)
MARKS_OF_CHINESE = str.maketrans("", "", string.punctuation + "，。、；：？！“”‘’（）《》【】—…·「」『』～")


class Entity(NamedTuple):
    """An entity: its type, its first token, and the one after its last."""

    kind: str
    start: int
    stop: int


def entities(tags: Sequence[str], letters: frozenset[str] | None = None) -> list[Entity]:
    """Return the entities marked by the tags of one text, as `seqeval` (and `conlleval`) does.

    Tags are `O`, or one of `LETTERS` (case does not count) with the type after `-` or `_`. An entity begins at B
    or S, behind O, E or S, and where the type changes; so `I-X` behind `O` begins one too. Of any other tag each run is
    an entity whose type is the tag.

    Args:
        tags: of the text.
        letters: the tags that mark entities without a type, from `marking_letters`; by default judged by `tags` alone.

    Source: Ramshaw and Marcus, "Text chunking using transformation-based learning", 1995; Nakayama, seqeval, 2018.
    """
    letters = marking_letters(tags) if letters is None else letters
    found: list[Entity] = []
    kind, start, before = "", -1, OUTSIDE
    for index, tag in enumerate([*tags, ""]):
        letter, rest = _letter_and_type(tag, letters) or (INSIDE, tag)
        begins = letter != OUTSIDE and (letter in "bs" or before in (OUTSIDE, "e", "s") or rest != kind)
        if start >= 0 and (begins or letter == OUTSIDE):
            found.append(Entity(kind, start, index))
            start = -1
        if begins:
            kind, start = rest, index
        before = letter
    return found


def unmarked(names: Iterable[str]) -> list[str]:
    """Return those of all tags that do not say where an entity begins, such as `NN` or `PER-B`."""
    known = list(names)
    letters = marking_letters(known)
    return [name for name in known if _letter_and_type(name, letters) is None]


def marking_letters(known: Iterable[str]) -> frozenset[str]:
    """Return which tags of one letter mark entities, or words outside of any, rather than being types themselves.

    A letter alone is ambiguous: S ends a word in `B M E S`, and is a morpheme among parts of speech such as `n v s u`.
    It is a mark if all tags are, and their letters belong to one of `SCHEMES`. Of other tags only O is, and `o` unless
    there are other tags of one letter.

    Args:
        known: all tags that there are.
    """
    tags = {tag for tag in known if tag.lower() not in OUTSIDES}
    alone = {tag for tag in tags if len(tag) == 1}
    letters = {tag.lower() for tag in alone}
    if all(_letter_and_type(tag, frozenset()) for tag in tags - alone) and any(map(letters.issubset, SCHEMES)):
        return frozenset(alone)
    return frozenset({"O"} | (alone if letters == {OUTSIDE} else set()))


@lru_cache(4096)
def _letter_and_type(tag: str, letters: frozenset[str]) -> tuple[str, str] | None:
    """Return one of o, b, i, e, s, and the type; None if the tag is of another form."""
    if tag in letters:
        return LETTERS[tag.lower()], ""
    if tag.lower() in OUTSIDES:
        return OUTSIDE, ""
    found = TYPED.fullmatch(tag)
    letter = LETTERS.get(found[1].lower()) if found else None
    return None if found is None or letter is None else (letter, found[2])


class EntityCounts(NamedTuple):
    """Numbers of entities that are predicted right, predicted, and in the targets; summable over texts."""

    hits: int
    predicted: int
    wanted: int


def entity_pairs(
    targets: Iterable[Sequence[str]], preds: Iterable[Sequence[str]], known: Iterable[str] | None = None
) -> Iterator[tuple[set[Entity], set[Entity]]]:
    """Yield for each text the entities of its target tags, and of its predicted ones.

    Args:
        targets: the tags of each text.
        preds: the predicted tags.
        known: all tags that there are; by default those of `targets` and `preds`.
    """
    pairs = list(zip(targets, preds, strict=True))
    letters = marking_letters({tag for pair in pairs for tags in pair for tag in tags} if known is None else known)
    for target, pred in pairs:
        yield set(entities(target, letters)), set(entities(pred, letters))


def entity_counts(
    targets: Iterable[Sequence[str]], preds: Iterable[Sequence[str]], known: Iterable[str] | None = None
) -> dict[str, EntityCounts]:
    """Count entities by type over the tags of many texts; an entity is right if type and both ends agree.

    For the arguments, see `entity_pairs`.
    """
    hits, predicted, wanted = Counter[str](), Counter[str](), Counter[str]()
    for there, found in entity_pairs(targets, preds, known):
        hits.update(entity.kind for entity in there & found)
        predicted.update(entity.kind for entity in found)
        wanted.update(entity.kind for entity in there)
    kinds = sorted({*predicted, *wanted})
    return {kind: EntityCounts(hits[kind], predicted[kind], wanted[kind]) for kind in kinds}


def entity_scores(hits: float, predicted: float, wanted: float) -> tuple[float, float, float]:
    """Return precision, recall and F1 of summed counts; 0 where a division by zero would stand."""
    return ratio(hits, predicted), ratio(hits, wanted), ratio(2.0 * hits, predicted + wanted)


def entity_precision_recall_f1(
    targets: Iterable[Sequence[str]], preds: Iterable[Sequence[str]], known: Iterable[str] | None = None
) -> tuple[float, float, float]:
    """Return precision, recall and F1 over all entities of many texts, every entity counting alike (micro).

    For the arguments, see `entity_pairs`.
    """
    counts = entity_counts(targets, preds, known).values()
    return entity_scores(*(sum(column) for column in zip(*counts, strict=True))) if counts else (0.0, 0.0, 0.0)


def plain_answer(text: str) -> str:
    """Return an answer in lower case, without punctuation, English articles and surplus white space.

    Punctuation is that of ASCII, and in texts with Chinese or Japanese characters also theirs.
    """
    marks = MARKS_OF_CHINESE if CHARACTER.search(text) else MARKS
    return " ".join(ARTICLES.sub(" ", text.lower().translate(marks)).split())


def exact_match(pred: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalised prediction is one of the answers, else 0; without answers, 1 if it is empty.

    Source: Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", EMNLP 2016, section 6.1.
    """
    return float(plain_answer(pred) in map(plain_answer, _possible(answers)))


def answer_f1(pred: str, answers: Sequence[str]) -> float:
    """Return the best F1 between the words of the prediction and of one of the answers.

    With Chinese or Japanese in one of them, characters count instead, and of these the longest run that both have. If
    prediction or answer is empty, 1 if both are, else 0.

    Source: Rajpurkar et al., EMNLP 2016, section 6.1; runs of characters as in Cui et al., "CMRC 2018", EMNLP 2019,
    and its published script.
    """
    return max(_overlap(_pieces(pred), _pieces(answer)) for answer in _possible(answers))


def _possible(answers: Sequence[str]) -> Sequence[str]:
    """Return the answers that are not empty after normalisation; [''] if there are none."""
    return [answer for answer in answers if plain_answer(answer)] or [""]


def _pieces(text: str) -> list[str]:
    return PIECES.findall(plain_answer(text))


def _overlap(pred: list[str], answer: list[str]) -> float:
    if not pred or not answer:
        return float(pred == answer)
    if CHARACTER.search("".join([*pred, *answer])):
        common = SequenceMatcher(None, pred, answer, autojunk=False).find_longest_match().size
    else:
        common = sum((Counter(pred) & Counter(answer)).values())
    return 2.0 * common / (len(pred) + len(answer))
