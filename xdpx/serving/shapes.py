"""The schemas of requests and answers, and the size limits of requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from xdpx.inference.answers import Prediction

MOST_ROWS, MOST_TEXTS, MOST_CHARACTERS = 1024, 8, 100_000
"""Maximum rows of a request, texts of a row, and characters of a text; a model cuts texts to its maximum length."""

Words = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Several = Annotated[list[Words], Field(min_length=1, max_length=MOST_TEXTS)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class OneText(_Body):
    """A text."""

    text: Words = Field(examples=["a gorgeous, witty movie."])


class OnePair(_Body):
    """A row of several texts, for models of pairs."""

    pair: Several = Field(examples=[["a cat", "an animal"]])


class Texts(_Body):
    """Texts."""

    texts: Annotated[list[Words], Field(max_length=MOST_ROWS)] = Field(examples=[["good", "bad"]])


class Pairs(_Body):
    """Rows of several texts, for models of pairs."""

    pairs: Annotated[list[Several], Field(max_length=MOST_ROWS)] = Field(examples=[[["a cat", "an animal"]]])


def _has(*names: str) -> Discriminator:
    """Return a function that recognises a kind of body by its keys, so that faults are reported for that kind."""
    several, one = names

    def chosen(body: Any) -> str:
        there = body if isinstance(body, dict) else vars(body) if isinstance(body, BaseModel) else {}
        return several if several in there else one

    return Discriminator(chosen)


One = Annotated[Annotated[OneText, Tag("text")] | Annotated[OnePair, Tag("pair")], _has("pair", "text")]
Many = Annotated[Annotated[Texts, Tag("texts")] | Annotated[Pairs, Tag("pairs")], _has("pairs", "texts")]
"""The bodies of a request for one row (`One`) and for many (`Many`)."""


@dataclass(frozen=True)
class Limits:
    """Limits on a request, whatever its content.

    Attributes:
        body: maximum size in bytes.
        seconds: maximum time to receive it.
    """

    body: int = 8 << 20
    seconds: float = 30.0


class Answer(BaseModel):
    """What the model says of a row."""

    label: str | None = Field(
        description="The label; for words, their tags separated by spaces; null if there is none."
    )
    probabilities: dict[str, float] = Field(description="Of each label; empty if the model gives none.")
    labels: list[str] | None = Field(
        None, description="The labels, or the tag of each word, if the model gives several."
    )
    score: float | None = Field(None, description="The number, if the model predicts numbers.")


class ModelFacts(BaseModel):
    """What is known of a model that is served."""

    name: str
    texts: list[str] = Field(description="The texts of a row: one, or several for a model of pairs.")
    labels: list[str] | None = Field(description="In the order of the classes; null if there are none.")
    checkpoint: str | None = Field(description="File of the weights.")


class Health(BaseModel):
    """How the server is."""

    status: str = Field(description="ok, or ending: open requests are finished, and no more are accepted.")
    models: list[str]
    waiting: int = Field(description="Rows waiting for an answer.")


class Problem(BaseModel):
    """Why a request has no answer."""

    detail: str


def rows_of(body: One | Many) -> Sequence[str | list[str]]:
    """Return the rows of a body."""
    if isinstance(body, Texts):
        return body.texts
    if isinstance(body, Pairs):
        return body.pairs
    return [body.text if isinstance(body, OneText) else body.pair]


def first_without_number(predictions: Sequence[Prediction]) -> int | None:
    """Return the index of the first row for which the model computes NaN or infinity, which JSON lacks; else None."""
    for index, each in enumerate(predictions):
        if not all(map(math.isfinite, (*each.probabilities.values(), each.score or 0.0))):
            return index
    return None


def answers_of(predictions: Sequence[Prediction], *, with_lists: bool) -> list[dict[str, Any]]:
    """Return predictions as JSON values: those of `Answer`, without fields that are null, except the label.

    Args:
        predictions: of a model.
        with_lists: whether every answer has its labels as a list, also none or one.
    """
    return [_answer(each, with_list=with_lists) for each in predictions]


def _answer(one: Prediction, *, with_list: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"label": one.label, "probabilities": one.probabilities}
    if with_list or (one.labels and one.labels != (one.label,)):
        answer["labels"] = one.labels
    if one.score is not None:
        answer["score"] = one.score
    return answer
