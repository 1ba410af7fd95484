"""Map names of weights in Google's checkpoints of BERT and ALBERT to ours and back; also with users' tables.

In a name `{}` stands for a number; both names have the same numbers in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from torch import Tensor

from xdpx.config.faults import refusal


class Row(NamedTuple):
    """Names of a weight in Google's checkpoint and here, and whether the matrix is transposed."""

    theirs: str
    ours: str
    turned: bool = False


DENSE = (("/kernel", ".weight", True), ("/bias", ".bias", False))
NORM = (("/gamma", ".weight", False), ("/beta", ".bias", False))
TABLE = (("", ".weight", False),)
HEAD = (("/output_weights", ".weight", False), ("/output_bias", ".bias", False))
BIAS = (("/output_bias", ".bias", False),)

_EMBEDDINGS = [
    ("bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings", TABLE),
    ("bert/embeddings/position_embeddings", "bert.embeddings.position_embeddings", TABLE),
    ("bert/embeddings/token_type_embeddings", "bert.embeddings.token_type_embeddings", TABLE),
    ("bert/embeddings/LayerNorm", "bert.embeddings.LayerNorm", NORM),
]
_LAYER = "bert/encoder/layer_{}", "bert.encoder.layer.{}"
_BERT = [
    *_EMBEDDINGS,
    *((f"{_LAYER[0]}/attention/self/{each}", f"{_LAYER[1]}.attention.self.{each}", DENSE)
      for each in ("query", "key", "value")),
    (f"{_LAYER[0]}/attention/output/dense", f"{_LAYER[1]}.attention.output.dense", DENSE),
    (f"{_LAYER[0]}/attention/output/LayerNorm", f"{_LAYER[1]}.attention.output.LayerNorm", NORM),
    (f"{_LAYER[0]}/intermediate/dense", f"{_LAYER[1]}.intermediate.dense", DENSE),
    (f"{_LAYER[0]}/output/dense", f"{_LAYER[1]}.output.dense", DENSE),
    (f"{_LAYER[0]}/output/LayerNorm", f"{_LAYER[1]}.output.LayerNorm", NORM),
    ("bert/pooler/dense", "bert.pooler.dense", DENSE),
    ("cls/predictions/transform/dense", "cls.predictions.transform.dense", DENSE),
    ("cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm", NORM),
    ("cls/predictions", "cls.predictions", BIAS),
    ("cls/seq_relationship", "cls.seq_relationship", HEAD),
    ("cls/squad", "qa_outputs", HEAD),
    ("", "classifier", HEAD),
]  # fmt: skip
_SHARED = "bert/encoder/transformer/group_{}/inner_group_{}", "bert.encoder.albert_layer_groups.{}.albert_layers.{}"
_ALBERT = [
    *_EMBEDDINGS,
    ("bert/encoder/embedding_hidden_mapping_in", "bert.encoder.embedding_hidden_mapping_in", DENSE),
    *((f"{_SHARED[0]}/attention_1/self/{each}", f"{_SHARED[1]}.attention.{each}", DENSE)
      for each in ("query", "key", "value")),
    (f"{_SHARED[0]}/attention_1/output/dense", f"{_SHARED[1]}.attention.dense", DENSE),
    (f"{_SHARED[0]}/LayerNorm", f"{_SHARED[1]}.attention.LayerNorm", NORM),
    (f"{_SHARED[0]}/LayerNorm_1", f"{_SHARED[1]}.full_layer_layer_norm", NORM),
    (f"{_SHARED[0]}/ffn_1/intermediate/dense", f"{_SHARED[1]}.ffn", DENSE),
    (f"{_SHARED[0]}/ffn_1/intermediate/output/dense", f"{_SHARED[1]}.ffn_output", DENSE),
    ("bert/pooler/dense", "bert.pooler", DENSE),
    ("cls/predictions/transform/dense", "predictions.dense", DENSE),
    ("cls/predictions/transform/LayerNorm", "predictions.LayerNorm", NORM),
    ("cls/predictions", "predictions", BIAS),
    ("cls/seq_relationship", "sop_classifier.classifier", HEAD),
    ("", "classifier", HEAD),
]  # fmt: skip

_NOT_OF_THE_MODEL = re.compile(
    r"(^|/)(adam_[mv]|lamb_[mv]|Adam(_1)?|AdamWeightDecay\w*|Momentum|global_step|save_counter|step|"
    r"beta[12]_power|good_steps|current_loss_scale)(/|$)|\.OPTIMIZER_SLOT"
)
"""Variables of optimizers."""
_WRAPPED = re.compile(r"^(module/)+|:0$")
"""Prefixes of names in hub modules, and suffixes in graphs."""
_ANY_LAYER = re.compile(r"(^|/)inner_group_\d+/")


@cache
def rows(*, albert: bool) -> tuple[Row, ...]:
    """Return the table of BERT, or that of ALBERT."""
    return tuple(
        Row((there + end).lstrip("/"), here + ending, turned)
        for there, here, leaves in (_ALBERT if albert else _BERT)
        for end, ending, turned in leaves
    )


def ours(found: Mapping[str, Tensor], table: Sequence[Row] = ()) -> dict[str, Tensor]:
    """Return TensorFlow variables with our names and orientation, without those of optimizers.

    Args:
        found: variables of a checkpoint, by their names there.
        table: of the user, with precedence over that of BERT or ALBERT. A name in neither is kept.

    Raises:
        ConfigError: two variables map to the same weight, or one that is to be turned is not a matrix.
    """
    both = [*table, *rows(albert=any(_ANY_LAYER.search(name) for name in found))]
    known = [(_pattern(row.theirs), row) for row in both]
    asked_for = [pattern for pattern, _ in known[: len(table)]]
    renamed: dict[str, Tensor] = {}
    origin: dict[str, str] = {}
    for name, value in found.items():
        plain = _WRAPPED.sub("", name)
        if _NOT_OF_THE_MODEL.search(plain) and not any(pattern.fullmatch(plain) for pattern in asked_for):
            continue
        new, turned = _renamed(plain, known)
        if new in renamed:
            problem = f"makes '{new}' of both {origin[new]} and {name}."
            raise refusal("tf_names", problem, "Write a pattern that matches only one of them.")
        if turned and value.dim() != 2:
            problem = (
                f"turns {name} into '{new}', but it is not a matrix: its size is {'x'.join(map(str, value.shape))}."
            )
            raise refusal("tf_names", problem, f"Give {name} a row that does not transpose it.")
        renamed[new], origin[new] = (value.t().contiguous() if turned else value), name
    return renamed


def theirs(found: Mapping[str, Tensor], *, albert: bool) -> tuple[dict[str, Tensor], list[str]]:
    """Return (our weights with Google's names and orientation, names of weights without a counterpart)."""
    known = [(_pattern(row.ours), Row(row.ours, row.theirs, row.turned)) for row in rows(albert=albert)]
    renamed, unknown = {}, []
    for name, value in found.items():
        new, turned = _renamed(name, known)
        if new == name:
            unknown.append(name)
        else:
            renamed[new] = value.t().contiguous() if turned else value
    return renamed, unknown


def user_table(given: Iterable[object]) -> list[Row]:
    """Return the table from a config: [[name there, name here, transposed], ...]; `transposed` is optional.

    Raises:
        ConfigError: a row is invalid, or its two names have different counts of `{}`.
    """
    return [_row(index, each) for index, each in enumerate(given)]


def _row(index: int, given: object) -> Row:
    row = list(given) if isinstance(given, list | tuple) else []
    right = len(row) in {2, 3} and all(isinstance(each, str) and each for each in row[:2])
    if not right or not isinstance(row[2] if len(row) == 3 else False, bool):
        problem = f"is {given!r}."
        remedy = "Write [name in TensorFlow, our name], followed by true for a matrix to transpose."
        raise refusal(f"tf_names[{index}]", problem, remedy)
    if row[0].count("{}") != row[1].count("{}"):
        problem = f"has {row[0].count('{}')} numbers {{}} in '{row[0]}', but {row[1].count('{}')} in '{row[1]}'."
        raise refusal(f"tf_names[{index}]", problem, "Use the same number in both.")
    return Row(row[0], row[1], len(row) == 3 and row[2])


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(r"(\d+)".join(map(re.escape, template.split("{}"))))


def _renamed(name: str, known: Iterable[tuple[re.Pattern[str], Row]]) -> tuple[str, bool]:
    for pattern, row in known:
        match = pattern.fullmatch(name)
        if match:
            return row.ours.format(*match.groups()), row.turned
    return name, False
