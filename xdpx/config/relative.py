"""Numbers that scale with another parameter: `@{batch_size:64}/50` is 50 at batch size 64, and 100 at 32."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from xdpx.config.faults import ConfigError, Fault, Origin, did_you_mean
from xdpx.config.source_text import excerpt, read_number

_NUMBER = r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?"
_RELATIVE = re.compile(rf"@\{{\s*([^:{{}}]+?)\s*:\s*({_NUMBER})\s*\}}\s*/\s*({_NUMBER})\s*")

FORM = "@{name:reference}/value, e.g. @{batch_size:64}/50"


def is_relative(value: object) -> bool:
    """Return whether `value` is a text that starts like a relative number."""
    return isinstance(value, str) and value.lstrip().startswith("@{")


def resolve(
    text: str,
    values: Mapping[str, Any],
    direction: Literal["inverse", "direct"] = "inverse",
    *,
    key: str = "relative number",
    origin: Origin | None = None,
) -> int | float:
    """Return the number that the relative number `text` means for these values.

    Args:
        text: `@{name:reference}/value`: the result is `value` if `values[name]` is `reference`.
        values: the parameters of the run.
        direction: "inverse" means value * reference / actual, "direct" means value * actual / reference.
        key: the parameter that holds `text`, for the fault.
        origin: where `text` was written.

    Returns:
        An int, rounded towards zero but not to it, if value is an int and reference and actual are whole; else a float.

    Raises:
        ConfigError: the text has another form, or the name is not a number other than 0.
    """
    match = _RELATIVE.fullmatch(text.strip())
    if not match:
        raise _refused(key, origin, f"{excerpt(text)} is not a relative number.", f"Write {FORM}.")
    try:
        reference, value = read_number(match[2]), read_number(match[3])
    except ValueError as error:
        raise _refused(key, origin, f"{excerpt(text)}: {error}.", f"Write {FORM}.") from None
    actual = _actual(match[1], values, key, origin)
    if reference == 0:
        raise _refused(key, origin, f"{excerpt(text)} has the reference 0.", "Use another number.")
    above, below = (reference, actual) if direction == "inverse" else (actual, reference)
    if isinstance(value, int) and float(reference).is_integer() and float(actual).is_integer():
        above, below = int(above), int(below)
        quotient = abs(value * above) // abs(below) or int(value != 0)  # 0 steps would mean off or never
        return quotient if value * above * below >= 0 else -quotient
    return value * above / below


def _actual(name: str, values: Mapping[str, Any], key: str, origin: Origin | None) -> int | float:
    """Return the value of the parameter referred to, a number other than 0."""
    if name not in values:
        remedy = did_you_mean(name, values, f"Set '{name}', or write a plain number.")
        raise _refused(key, origin, f"refers to '{name}', which this run does not have.", remedy)
    actual = values[name]
    if is_relative(actual):
        raise _refused(key, origin, f"refers to '{name}', which is itself relative.", "Refer to a plain number.")
    if isinstance(actual, bool) or not isinstance(actual, (int, float)) or actual == 0:
        problem = f"refers to '{name}', which is {excerpt(repr(actual))}."
        raise _refused(key, origin, problem, "Refer to a number other than 0.")
    return actual


def _refused(key: str, origin: Origin | None, problem: str, remedy: str) -> ConfigError:
    return ConfigError(origin.file if origin else key, [Fault(key, problem, remedy, origin)])
