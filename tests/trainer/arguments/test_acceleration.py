from __future__ import annotations

from pathlib import Path

import pytest
from transformers.trainer_pt_utils import AcceleratorConfig as Theirs

from xdpx.trainer.arguments import AcceleratorConfig
from xdpx.trainer.arguments.acceleration import accelerator_config


def test_settings_may_be_none_a_dict_json_a_file_or_an_object(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"even_batches": false}')
    expected = AcceleratorConfig(even_batches=False)
    for given in ({"even_batches": False}, '{"even_batches": false}', str(file), expected, Theirs(even_batches=False)):
        assert accelerator_config(given) == expected
    assert accelerator_config(None) == AcceleratorConfig()
    assert AcceleratorConfig.from_json_file(file) == expected


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="has no key 'split_batch'. Did you mean 'split_batches'"):
        accelerator_config({"split_batch": True})


def test_flags_may_be_words_and_values_of_other_kinds_are_refused() -> None:
    assert accelerator_config({"split_batches": "false", "dispatch_batches": None}) == AcceleratorConfig()
    for given, said in (
        ({"split_batches": "maybe"}, "split_batches is 'maybe'. Use true or false"),
        (AcceleratorConfig(gradient_accumulation_kwargs=3), "gradient_accumulation_kwargs is 3. Give a dict"),  # type: ignore[arg-type]
        (
            {"gradient_accumulation_kwargs": {"steps": 2}},
            "gradient_accumulation_kwargs has no key 'steps'. Did you mean 'num_steps'",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            accelerator_config(given)


def test_the_class_instead_of_an_object_of_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"is the class AcceleratorConfig. Give an instance: AcceleratorConfig\(\)"):
        accelerator_config(AcceleratorConfig)


def test_what_belongs_to_a_process_is_written_down_only_when_set() -> None:
    assert "use_configured_state" not in AcceleratorConfig().to_dict()
    assert AcceleratorConfig(use_configured_state=True).to_dict()["use_configured_state"] is True
    assert AcceleratorConfig().pop("even_batches") is True
