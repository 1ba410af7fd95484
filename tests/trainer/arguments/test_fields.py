from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import transformers

from xdpx.trainer.arguments import Seq2SeqTrainingArguments, TrainingArguments
from xdpx.trainer.arguments.fields import OwnFields

OWN = [field.name for field in dataclasses.fields(OwnFields)]
PAIRS = [
    (TrainingArguments, transformers.TrainingArguments),
    (Seq2SeqTrainingArguments, transformers.Seq2SeqTrainingArguments),
]


def default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default is not dataclasses.MISSING else field.default_factory()  # type: ignore[misc]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_fields_stand_in_the_order_of_the_original_with_its_defaults(ours: Any, theirs: Any) -> None:
    fields = [f for f in dataclasses.fields(ours) if f.name not in OWN]
    assert [(f.name, default_of(f)) for f in fields] == [(f.name, default_of(f)) for f in dataclasses.fields(theirs)]


def test_fields_that_the_original_lacks_stand_behind_all_of_its_own() -> None:
    names = [f.name for f in dataclasses.fields(TrainingArguments)]
    assert names == [f.name for f in dataclasses.fields(transformers.TrainingArguments)] + OWN


def test_a_number_that_is_whole_by_default_stays_so() -> None:
    kinds = {f.name: type(default_of(f)) for f in dataclasses.fields(transformers.TrainingArguments)}
    assert {f.name: type(default_of(f)) for f in dataclasses.fields(TrainingArguments) if f.name not in OWN} == kinds


@pytest.mark.parametrize("field", dataclasses.fields(Seq2SeqTrainingArguments), ids=lambda field: field.name)
def test_every_field_says_what_it_decides(field: dataclasses.Field[Any]) -> None:
    said = field.metadata["help"]
    assert said.endswith(".")
    assert "%" not in said  # argparse would take it for a placeholder
