from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import torch

from xdpx.trainer.files.plain import OnlyPicklable, plain, plain_json


class Color(enum.StrEnum):
    RED = "red"


def test_plain_values_and_tensors_stay_as_they_are() -> None:
    weight = torch.ones(2)
    values = {"a": [1, 2.5, None, True, "x"], 3: (weight, b"y")}
    assert plain(values) == values
    assert plain(values)[3][0] is weight


def test_what_only_looks_different_becomes_plain() -> None:
    given: Any = {"rate": np.float64(0.1), "kind": Color.RED, "steps": defaultdict(int, a=1), "more": OrderedDict(b=2)}
    made = plain({**given, "keys": np.arange(3, dtype=np.int64)})
    assert [type(value) for value in made.values()] == [float, str, dict, dict, torch.Tensor]
    assert made["rate"] == 0.1
    assert made["kind"] == "red"
    assert made["keys"].tolist() == [0, 1, 2]


def test_an_object_is_refused_with_its_place_and_class() -> None:
    with pytest.raises(OnlyPicklable, match=r"^optimizer\.state\[1\]\.projector is a .*\.object$"):
        plain({"state": [0, {"projector": object()}]}, "optimizer")


def test_anything_can_be_told_as_json() -> None:
    given = {"kind": Color.RED, "path": object, 3: {1}, "nothing": None, "rate": np.float32(0.5)}
    assert plain_json(given) == {"kind": "red", "path": str(object), "3": [1], "nothing": None, "rate": 0.5}
