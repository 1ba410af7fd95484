from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest

from xdpx.config.hparams_types import fits, type_name


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (None, int | None, True),
        (np.int32(3), int, True),
        (np.float32(3), float, True),
        (np.float32(3), int, False),
        (True, bool, True),
        (1, bool, False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        (True, Literal[1], False),
        ([1, 2], Sequence[int], True),
        ("12", Sequence[int], False),
        ((1, "a"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ({"a": 1}, Mapping[str, int], True),
        ({"a": "b"}, dict[str, int], False),
        (len, Callable[..., Any], True),
        (3, Callable[..., Any], False),
        (bool, type[int], True),
        (str, type[int], False),
        (object(), Any, True),
        (object(), "later", True),
    ],
)
def test_values_fit_their_types(value: Any, wanted: Any, expected: bool):
    assert fits(value, wanted) is expected


def test_types_are_named_as_they_are_written():
    assert type_name(int) == "int"
    assert type_name(int | None) == "int | None"
    assert type_name(None) == "None"
    assert type_name(Sequence[int]) == "Sequence[int]"
