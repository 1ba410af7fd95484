from __future__ import annotations

from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.printing import as_json, flat, text


def test_a_type_of_numbers_is_written_by_its_name() -> None:
    import torch

    made = TrainingArguments("x", lr_scheduler_kwargs={"dtype": torch.bfloat16, "inner": {"dtype": torch.float16}})
    assert made.to_dict()["lr_scheduler_kwargs"] == {"dtype": "bfloat16", "inner": {"dtype": "float16"}}


def test_settings_of_parallelism_are_written_in_accelerates_way() -> None:
    class Parallelism:
        def to_json(self) -> dict[str, int]:
            return {"tp_size": 2}

    assert TrainingArguments("x", parallelism_config=Parallelism()).to_dict()["parallelism_config"] == {"tp_size": 2}


def test_a_table_of_hyper_parameters_holds_numbers_and_texts_only() -> None:
    assert flat({"a": 1, "b": None, "c": [1], "d": True}) == {"a": 1, "b": "None", "c": "[1]", "d": True}


def test_a_function_is_written_by_its_name() -> None:
    assert as_json({"f": flat}) == '{\n  "f": "flat"\n}'


def test_for_people_there_is_one_argument_to_a_line_sorted() -> None:
    lines = text(TrainingArguments("x")).splitlines()
    assert lines[0] == "TrainingArguments("
    assert lines[1:-1] == sorted(lines[1:-1])
    assert "hub_token=<HUB_TOKEN>," in lines
