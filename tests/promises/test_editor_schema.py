"""The schema that `--schema` prints is one, lets every example through, and stops what an editor should underline."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from xdpx.config import catalogue
from xdpx.config.hjson_reader import read_hjson
from xdpx.config.located import plain
from xdpx.config.schema import schema
from xdpx.config.source_text import decode

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").rglob("*.hjson") if path.name != "space.hjson"
)
COMMANDS = [entry.name for entry in catalogue.entries("command")]


@cache
def validator(command: str) -> Draft202012Validator:
    return Draft202012Validator(schema(command))


def faults(command: str, config: Any) -> list[str]:
    return [error.message for error in validator(command).iter_errors(config)]


def command_of(path: Path, config: dict[str, Any]) -> str:
    if "data_source" in config or "prepro" in path.name:
        return "x-prepro"
    if "predict_file_map" in config:
        return "x-pred"
    if "space_config" in config:
        return "x-tune"
    return "x-eval" if path.stem == "eval" else "x-train"


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_a_schema(command: str) -> None:
    Draft202012Validator.check_schema(schema(command))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_example_passes(path: Path) -> None:
    config = plain(read_hjson(decode(path.read_bytes(), str(path)), []))
    assert not faults(command_of(path, config), config)


@pytest.mark.parametrize(
    "config",
    [
        {"batch_size": "${small}", "kernel_sizes": [3, "${wide}"]},
        {"log_interval": "@{batch_size:64}/50"},
        {"__gpu__": 1, "__def__": {"anything": [1]}, "__parent__": ["a", [{"seed": 1}]], "__ignore__": "seed"},
        [{"seed": 1}, {"seed": 2}],
        {"major_metric": "a_users_own"},
        {"metrics": ["mcc", "a_users_own", "${another}"]},
    ],
)
def test_what_the_config_language_allows_passes(config: Any) -> None:
    assert not faults("x-train", config)


@pytest.mark.parametrize(
    "config",
    [
        {"batch_sise": 3},
        {"model": "cls_cn"},
        {"batch_size": 0},
        {"batch_size": "many"},
        {"pooling": "mean"},
        {"kernel_sizes": ["wide"]},
        [{"seed": 1}, {"sede": 2}],
    ],
)
def test_what_is_misspelt_or_of_another_type_is_stopped(config: Any) -> None:
    assert faults("x-train", config)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_editor_is_given_a_meaning_for_every_key_and_the_registered_names(command: str) -> None:
    properties = schema(command)["$defs"]["run"]["properties"]
    assert not [key for key, told in properties.items() if key != "$schema" and not told.get("description")]
    for item in catalogue.entry("command", command).parameters:
        if item.registry:
            assert properties[item.key]["anyOf"][0]["enum"] == catalogue.names(item.registry)
