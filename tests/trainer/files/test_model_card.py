from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from xdpx.config.faults import ConfigError
from xdpx.trainer.files.model_card import ModelCard

HISTORY = [
    {"loss": 0.9, "step": 10, "epoch": 0.5},
    {"eval_loss": 0.8, "eval_accuracy": 0.75, "eval_runtime": 2.0, "eval_samples_per_second": 9.0, "step": 10},
    {"loss": 0.5, "step": 20, "epoch": 1.0},
    {"eval_loss": 0.4, "eval_accuracy": 0.875, "eval_runtime": 2.0, "step": 20, "epoch": 1.0},
]


def card(**more: object) -> ModelCard:
    fields = {
        "model_name": "mine", "finetuned_from": "them/base", "license": "mit", "tags": "toy",
        "tasks": "text-classification", "dataset_tags": "glue", "dataset": "GLUE SST2", "log_history": HISTORY,
        "arguments": {"learning_rate": 2e-5},
    }  # fmt: skip
    return ModelCard(**{**fields, **more})  # type: ignore[arg-type]


def test_the_header_is_what_the_hub_reads() -> None:
    header = yaml.safe_load(card().text().split("---\n")[1])
    assert header["tags"] == ["toy", "generated_from_trainer"]
    assert (header["license"], header["base_model"], header["datasets"]) == ("mit", "them/base", ["glue"])
    [result] = header["model-index"][0]["results"]
    assert result["dataset"] == {"name": "GLUE SST2", "type": "glue"}
    assert {metric["name"]: metric["value"] for metric in result["metrics"]} == {"loss": 0.4, "accuracy": 0.875}


def test_the_text_tells_scores_arguments_and_the_way_there() -> None:
    text = card().text()
    assert "- accuracy: 0.8750" in text
    assert "- learning_rate: 2e-05" in text
    assert "| 10 | 0.9000 | 0.8000 | 0.7500 |" in text
    assert "runtime" not in text


def test_a_card_of_nothing_can_be_written() -> None:
    assert "# model" in ModelCard().text()


def test_facts_that_are_no_names_are_refused_together() -> None:
    with pytest.raises(ConfigError, match=r"tags: is 3. Give a name, or a list of names.\n.*tasks: is True"):
        card(tags=3, tasks=True)


def test_a_card_is_renewed_and_keeps_the_tags_it_had(tmp_path: Path) -> None:
    assert card(tags=["first"]).write(str(tmp_path))
    assert card(tags=["second"]).write(str(tmp_path))
    header = yaml.safe_load((tmp_path / "README.md").read_text().split("---\n")[1])
    assert header["tags"] == ["second", "first", "generated_from_trainer"]


def test_what_a_user_wrote_stays(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# My model\n")
    assert not card().write(str(tmp_path))
    assert (tmp_path / "README.md").read_text() == "# My model\n"
