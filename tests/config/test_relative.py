from __future__ import annotations

from typing import Any

import pytest

from xdpx.config.faults import ConfigError, Origin
from xdpx.config.relative import is_relative, resolve

INVERSE = [
    ("@{batch_size:64}/50", 64, 50),
    ("@{batch_size:64}/50", 32, 100),
    ("@{batch_size:64}/50", 48, 66),
    (" @{ batch_size : 64 } / 50 ", 128, 25),
    ("@{batch_size:64}/50.5", 64, 50.5),
    ("@{batch_size:64}/-1", 32, -2),
    ("@{batch_size:64}/-5", 48, -6),
    ("@{batch_size:64}/50", 4096, 1),
    ("@{batch_size:64}/-5", 4096, -1),
    ("@{batch_size:64}/0", 4096, 0),
    ("@{batch_size:64}/1e3", 64, 1000),
    ("@{batch_size:64.0}/50", 32.0, 100),
    ("@{batch_size:64}/1.0", 64, 1.0),
    ("@{batch_size:64}/50", 64.5, 50 * 64 / 64.5),
]


@pytest.mark.parametrize(("text", "batch_size", "number"), INVERSE)
def test_a_relative_number_shrinks_as_its_reference_grows(text: str, batch_size: float, number: float) -> None:
    result = resolve(text, {"batch_size": batch_size}, "inverse")
    assert (result, type(result)) == (number, type(number))


def test_a_direct_one_grows_with_it() -> None:
    assert resolve("@{learning_rate:0.001}/0.01", {"learning_rate": 0.002}, "direct") == pytest.approx(0.02)
    assert resolve("@{n:3}/10", {"n": 4}, "direct") == 13


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("@{batch_size}/50", {"batch_size": 1}, "is not a relative number"),
    ("@{batch_size:64}", {"batch_size": 1}, "is not a relative number"),
    ("@{batch_size:64}/fifty", {"batch_size": 1}, "is not a relative number"),
    ("@{batch_size:6.4.4}/50", {"batch_size": 1}, "could not convert"),
    ("@{batch_size:64}/1e999", {"batch_size": 1}, "too large"),
    ("@{batch_sise:64}/50", {"batch_size": 1}, "Did you mean 'batch_size'"),
    ("@{batch_size:0}/50", {"batch_size": 1}, "reference 0"),
    ("@{batch_size:64}/50", {"batch_size": 0}, "other than 0"),
    ("@{batch_size:64}/50", {"batch_size": True}, "other than 0"),
    ("@{batch_size:64}/50", {"batch_size": "64"}, "other than 0"),
    ("@{batch_size:64}/50", {"batch_size": None}, "other than 0"),
    ("@{a:64}/50", {"a": "@{b:1}/2"}, "itself relative"),
]


@pytest.mark.parametrize(("text", "values", "message"), WRONG)
def test_what_cannot_be_resolved_is_a_fault_of_its_key(text: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(text, values, "inverse", key="eval_interval", origin=Origin("f", 3))
    assert message in str(error.value)
    assert "eval_interval (f:3)" in str(error.value)


def test_only_texts_that_open_with_the_sign_are_relative() -> None:
    assert [is_relative(value) for value in ("@{a:1}/2", "a@{b}", 5, None, "@x")] == [True, False, False, False, False]
