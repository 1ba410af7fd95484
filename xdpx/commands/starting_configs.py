"""Compose the starting configs for a file: prepro, train, eval and predict, ready to be edited."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdpx.config import catalogue
from xdpx.config.faults import ConfigError
from xdpx.config.located import plain
from xdpx.config.overrides import read_overrides
from xdpx.config.unknown_keys import unlisted
from xdpx.datasets.guessing.columns import Columns
from xdpx.utils import io

_BARE = re.compile(r"[A-Za-z<][\w./<>@-]*")
_LITERALS = frozenset({"true", "false", "null"})
FEWEST_UPDATES = 600
"""Fewest updates for a light model: on few rows it learns little after that."""


FEWEST_UPDATES_OF_ENCODERS = 200
BERT_WIDTH = 768
"""Hidden size of BERT base, for which the learning rate of its paper is meant."""


@dataclass(frozen=True)
class Place:
    """The folder of a first run."""

    folder: str

    def path(self, name: str) -> str:
        """Return the path of a file or folder inside."""
        return io.join(self.folder, name)


def compose(
    place: Place,
    columns: Columns,
    sizes: Mapping[str, int],
    *,
    source: str,
    lengths: Sequence[int],
    model: str | None,
    settings: Sequence[str],
) -> dict[str, str]:
    """Return the four configs.

    Args:
        place: the folder for configs and results.
        columns: the role of each column.
        sizes: rows of each split.
        source: the file of the rows, for the comment on top.
        lengths: of texts, in tokens, approximately.
        model: folder of an encoder in Hugging Face format; None for a light model.
        settings: the user's `key=value` words; each goes into the config of the command that has the key.

    Returns:
        {file name: text}.

    Raises:
        ConfigError: a setting is not `key=value`, or no command has its key.
    """
    prepro = _prepro(place, columns, sizes, lengths, model)
    train = _train(place, columns, sizes["train"], model)
    for key, value in _typed(settings).items():
        (prepro if _belongs_to_prepro(key) else train)[key] = value
    scored = {"save_dir": place.path("run"), "valid_subset": ["dev", "test"], "save_to_file": place.path("scores.tsv")}
    scored["save_mode"] = "w"
    test = place.path(f"raw/test.{_suffix(columns)}")
    predicted = {"save_dir": place.path("run"), "predict_file_map": {test: place.path("predictions.tsv")}}
    made = f"Made by x-run from {io.name(source)}: yours to edit. Run it:"
    return {
        f"{name}.hjson": _text(f"{made} {command} {place.path(name)}", values)
        for name, command, values in (
            ("prepro", "x-prepro", prepro), ("train", "x-train", train),
            ("eval", "x-eval", scored), ("predict", "x-pred", predicted),
        )
    }  # fmt: skip


def _suffix(columns: Columns) -> str:
    return "txt" if columns.task == "tags" else "jsonl"


def _prepro(
    place: Place, columns: Columns, sizes: Mapping[str, int], lengths: Sequence[int], model: str | None
) -> dict[str, Any]:
    """Return the keys of x-prepro."""
    suffix, pair = _suffix(columns), len(columns.texts) == 2
    values: dict[str, Any] = {"data_source": place.path("raw"), "data_dir": place.path("data")}
    values["data_files"] = {f"{split}.{suffix}": split for split in sizes}
    if columns.task == "tags":
        values |= {"loader": "tagged", "parser": "conll", "processor": "bert_token"}
    else:
        kind = "pair" if pair else "single"
        values |= {"loader": kind, "parser": "jsonl", "fields": fields_of(columns)}
        values["processor"] = f"bert_{kind}" if model else kind
    if columns.separator:
        values["label_separator"] = columns.separator
    if columns.task == "number":
        values["target_type"] = "number"
    values |= {"max_len": _max_len(lengths)}
    if model:
        vocabulary = io.join(model, "vocab.txt")
        return values | ({"tokenizer": "bert", "vocab_file": vocabulary} if io.isfile(vocabulary) else
                         {"tokenizer": "auto", "vocab_file": model})  # fmt: skip
    values["tokenizer"] = "space" if columns.task == "tags" else "char_zh"  # Latin words and numbers stay whole
    if sizes["train"] > 2000:
        values["threshold"] = 1
    return values


def fields_of(columns: Columns) -> list[str]:
    """Return the column names of the rows that are written."""
    return ["text1", "text2", "label"] if len(columns.texts) == 2 else ["text", "label"]


def _max_len(lengths: Sequence[int]) -> int:
    """Return a maximum length that truncates 1 text of 100, between 16 and 256 tokens."""
    longest = sorted(lengths)[int(0.99 * (len(lengths) - 1))]
    return min(256, max(16, 8 * math.ceil((longest + 2) / 8)))


def _train(place: Place, columns: Columns, rows: int, model: str | None) -> dict[str, Any]:
    """Return the keys of x-train."""
    values: dict[str, Any] = {"__parent__": f"families/{_family(columns, light=model is None)}"}
    values |= {"data_dir": place.path("data"), "save_dir": place.path("run"), "resume": "auto"}
    if columns.task == "several":
        values |= {"loss": "bce", "major_metric": "f1"}
    if model and columns.task == "number":
        values["standardize"] = True
    batch = 32 if rows >= 1000 or (model and rows >= 500) else 16 if model else 8
    updates = max(rows // batch, 1)
    if model:
        values |= {"pretrained_model": model, "learning_rate": _learning_rate(model)}
        epochs = min(max(3, math.ceil(FEWEST_UPDATES_OF_ENCODERS / updates)), 10)
    else:
        epochs = min(max(5, math.ceil(FEWEST_UPDATES / updates)), 40)
    values |= {"batch_size": batch, "max_epoch": epochs}
    values |= {"eval_interval": min(100, updates), "log_interval": min(20, updates)}
    return values


def _learning_rate(model: str) -> float:
    """Return 2e-5 for an encoder of BERT's width or wider, and more for a narrower one: 4e-5 at 384."""
    config = io.join(model, "config.json")
    width = BERT_WIDTH
    if io.isfile(config):
        with io.open(config, encoding="utf-8") as file:
            width = json.load(file).get("hidden_size") or width
    return round(2e-5 * max(1.0, BERT_WIDTH / width), 7)


def _family(columns: Columns, *, light: bool) -> str:
    """Return the family of configs to inherit from."""
    pair = len(columns.texts) == 2
    if columns.task == "number":
        return "bert_regression" if not light else "re2_regression" if pair else "cnn_regression"
    if columns.task == "tags":
        return "lstm_token" if light else "bert_token"
    if not light:
        return "bert_classification"
    return "re2" if pair else "cls_cnn"


def _typed(settings: Sequence[str]) -> dict[str, Any]:
    """Parse `key=value` words as the command line does. Raises ConfigError for invalid words and unknown keys."""
    overrides, faults = read_overrides(settings)
    if faults:
        raise ConfigError("command line", faults)
    known = {key for kind in catalogue.kinds() for key in _keys(kind)}
    faults = [unlisted(override.keys[0], known, "x-run") for override in overrides if override.keys[0] not in known]
    if faults:
        raise ConfigError("command line", faults)
    return {".".join(override.keys): plain(override.value) for override in overrides}


def _belongs_to_prepro(key: str) -> bool:
    """Return whether a key belongs to preprocessing; keys of both commands, such as `seed`, belong to training."""
    if key in {item.key for item in catalogue.entry("command", "x-train").parameters} - {"processor"}:
        return False
    of_command = {item.key for item in catalogue.entry("command", "x-prepro").parameters}
    return key in of_command.union(*map(_keys, ("loader", "parser", "tokenizer", "processor")))


def _keys(kind: str) -> set[str]:
    return {item.key for entry in catalogue.entries(kind) for item in entry.parameters}


def _text(comment: str, values: Mapping[str, Any]) -> str:
    lines = [f"  {key}: {_written(value)}" for key, value in values.items()]
    return "\n".join([f"// {comment}", "{", *lines, "}", ""])


def _written(value: object) -> str:
    """Return a value in Hjson as people write it: without quotes if they are not needed."""
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and value not in _LITERALS
        return value if bare else json.dumps(value.replace("${", "$${"), ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_written(key)}: {_written(item)}' for key, item in value.items())} }}"
    return json.dumps(value)
