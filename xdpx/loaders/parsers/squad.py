"""The parser `squad`: questions about paragraphs in the JSON format of SQuAD, also used by CMRC 2018 and others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.loaders.parsers.base import BadLine, Row, RowParser
from xdpx.loaders.parsers.encodings import TextParameters
from xdpx.loaders.parsers.files import open_text

COLUMNS = ["question", "context", "answer", "answer_start", "other_answers"]


class SquadParser(RowParser):
    """Reads questions with the columns question, context, first answer, its start in characters, and other answers.

    The other answers, which differ from the first, are a JSON list. A question without an answer (version 2) has an
    empty answer, and must not say `is_impossible` beside one; one without the key `answers` lacks the columns of
    answers. A file is held in memory as a whole, at a few times its size.

    Source: Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", EMNLP 2016; "Know What You
    Don't Know", ACL 2018.
    """

    unit = "question"

    class Parameters(TextParameters):
        """Keys of the squad parser."""

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the columns of each question."""
        number = 0
        for article in _articles(path, self.parameters.encoding):
            for paragraph in _parts(path, "an article", article, "paragraphs"):
                for question in _parts(path, "a paragraph", paragraph, "qas"):
                    number += 1
                    yield number, _row(number, paragraph, question)

    def header(self, path: str) -> Row | None:
        """Return the names of the columns."""
        del path
        return list(COLUMNS)


def _articles(path: str, encoding: str) -> list[dict[str, Any]]:
    try:
        with open_text(path, encoding) as stream:
            found: list[dict[str, Any]] = json.loads(stream.read().decode("utf-8-sig"))["data"]
    except (ValueError, KeyError, TypeError) as error:
        problem = f"is not the JSON of SQuAD ({type(error).__name__}: {error})."
        remedy = "Its outermost object has a list 'data' of articles with 'paragraphs'."
        raise ConfigError(path, [Fault("data_files", problem, remedy)]) from error
    return found


def _parts(path: str, kind: str, whole: Any, name: str) -> list[Any]:
    """Return a list in an article or paragraph; raise ConfigError without one: all questions in it would be lost."""
    found = whole.get(name) if isinstance(whole, dict) else None
    if isinstance(found, list):
        return found
    keys = ", ".join(map(str, whole)) if isinstance(whole, dict) else type(whole).__name__
    problem = f"has {kind} without a list '{name}', but with: {keys:.80}."
    remedy = "Correct its keys; for questions with a context each, use parser: jsonl."
    raise ConfigError(path, [Fault("data_files", problem, remedy)])


def _row(number: int, paragraph: Any, question: Any) -> Row | BadLine:
    try:
        row = [question["question"], paragraph["context"]]
        if "answers" not in question:
            return row
        if question.get("is_impossible") and question["answers"]:
            return BadLine(number, "has is_impossible: true, and answers")
        first, *more = question["answers"] or [{"text": "", "answer_start": -1}]
        others = list(dict.fromkeys(answer["text"] for answer in more if answer["text"] != first["text"]))
        listed = json.dumps(others, ensure_ascii=False) if others else ""
        return [*row, first["text"], str(first["answer_start"]), listed]
    except (KeyError, IndexError) as error:
        return BadLine(number, f"lacks {error}")
    except (TypeError, ValueError):
        return BadLine(number, "has answers of another layout than a list of objects with text and answer_start")
