"""Print, compare and serialise templates: flattened lines, a diff, and JSON that never imports anything by name."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from xdpx.config.faults import did_you_mean
from xdpx.config.hparams_types import made_by

_MARKS = ("__template__", "__dtype__", "__tuple__", "__name__", "__enum__", "__map__", "__float__")


def lines(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted path, printed value) of every leaf, and `path.cls` with the class that each template builds."""
    fields = _parts(value)
    if fields is None:
        yield path or "value", printed(value)
        return
    named = hasattr(value, "Instantiate") or made_by(value) is not None
    if named:
        yield _join(path, "cls"), _class_of(value)
    elif not fields:
        yield path, printed(value)
    for name, item in fields.items():
        yield from lines(item, f"{path}{name}" if name.startswith("[") else _join(path, name))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the named parts of a template, Fiddle node, mapping, or list that contains some; None for a leaf."""
    if hasattr(value, "Instantiate"):
        return dict(value.fields_and_values())
    if made_by(value) is not None:
        return {str(name): item for name, item in value.__arguments__.items()}
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    if isinstance(value, list | tuple) and any(_parts(item) is not None for item in value):
        return {f"[{index}]": item for index, item in enumerate(value)}
    return None


def _class_of(value: object) -> str:
    made = made_by(value) or getattr(type(value), "_owner", None) or type(value)
    return name_of(made)


def name_of(thing: object) -> str:
    """Return `module.qualified_name` of a class or function."""
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', repr(thing))}".lstrip(".")


def printed(value: object) -> str:
    """Return the text of a leaf, the same in every process: without addresses, dtypes and classes by name."""
    dtype = dtype_name(value)
    if dtype:
        return dtype
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(printed(item) for item in value)}]"
    if isinstance(value, np.generic):
        return repr(value.item())
    if callable(value) and hasattr(value, "__qualname__"):
        return name_of(value)
    text = repr(value)
    return f"<{name_of(type(value))}>" if " at 0x" in text else text


def dtype_name(value: object) -> str:
    """Return the name of a dtype in any form (`jnp.bfloat16`, `np.dtype("int32")`, `np.float32`); '' otherwise."""
    found = value if isinstance(value, np.dtype) else getattr(value, "dtype", None) if callable(value) else None
    if isinstance(value, type) and issubclass(value, np.generic):
        found = np.dtype(value)
    return found.name if isinstance(found, np.dtype) else ""


def diff(left: object, right: object) -> str:
    """Return the lines in which two templates differ: `path : left -> right`; '' if they are equal."""
    before, after = dict(lines(left)), dict(lines(right))
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    return "\n".join(f"{path} : {before.get(path, '(none)')} -> {after.get(path, '(none)')}" for path in changed)


def to_data(value: Any) -> Any:
    """Return a template as JSON-serialisable data with all fields, including those at their defaults.

    Raises:
        TypeError: a value inside is not serialisable (an array, an open file, a lambda).
    """
    if hasattr(value, "Instantiate"):
        fields = {name: to_data(item) for name, item in value.fields_and_values()}
        return {"__template__": name_of(type(value)), "__set__": sorted(value.given()), **fields}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"__float__": repr(value)}
    if dtype_name(value):
        return {"__dtype__": dtype_name(value)}
    return _compound_data(value)


def _compound_data(value: object) -> Any:
    if isinstance(value, enum.Enum):
        return {"__enum__": name_of(type(value)), "member": value.name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return {"__tuple__": [to_data(item) for item in value]}
    if isinstance(value, list):
        return [to_data(item) for item in value]
    if isinstance(value, Mapping):
        return {"__map__": [[to_data(name), to_data(item)] for name, item in value.items()]}
    if callable(value) and "<" not in name_of(value):
        return {"__name__": name_of(value)}
    raise TypeError(f"a {type(value).__name__} cannot be written into JSON: {printed(value)}.")


def from_data(data: object, known: Mapping[str, Any]) -> Any:
    """Return the value that `to_data` wrote. `known` maps allowed names to classes, enums and functions.

    Raises:
        ValueError: a name is not in `known`; nothing is imported by name.
    """
    if isinstance(data, list):
        return [from_data(item, known) for item in data]
    if not isinstance(data, dict):
        return data
    for mark in _MARKS:
        if mark in data:
            return _READERS[mark](data, known)
    raise ValueError(f"an object of a template's JSON needs one of {', '.join(_MARKS)}; it has {', '.join(data)}.")


def _template(data: dict[str, Any], known: Mapping[str, Any]) -> Any:
    cls = _found(data["__template__"], known)
    fields = {name: from_data(item, known) for name, item in data.items() if name not in {"__template__", "__set__"}}
    template = cls(**fields)
    template.mark_given(data.get("__set__", ()))
    return template


def _dtype(data: dict[str, Any], known: Mapping[str, Any]) -> Any:
    try:
        return np.dtype(data["__dtype__"])
    except TypeError:
        import ml_dtypes  # registers bfloat16 and the float8 types with numpy

        return np.dtype(getattr(ml_dtypes, data["__dtype__"]))


_READERS: dict[str, Callable[[dict[str, Any], Mapping[str, Any]], Any]] = {
    "__template__": _template,
    "__dtype__": _dtype,
    "__tuple__": lambda data, known: tuple(from_data(item, known) for item in data["__tuple__"]),
    "__name__": lambda data, known: _found(data["__name__"], known),
    "__enum__": lambda data, known: _found(data["__enum__"], known)[data["member"]],
    "__map__": lambda data, known: {from_data(key, known): from_data(item, known) for key, item in data["__map__"]},
    "__float__": lambda data, known: float(data["__float__"]),
}


def _found(name: str, known: Mapping[str, Any]) -> Any:
    if name in known:
        return known[name]
    remedy = did_you_mean(name, known, rest="Import its module first, or pass it in `known`.")
    raise ValueError(f"'{name}' is not a known class. {remedy}")


def to_json(template: object, *, indent: int | None = 2) -> str:
    """Return a template as JSON."""
    return json.dumps(to_data(template), indent=indent)


def names_of(things: Iterable[Any]) -> dict[str, Any]:
    """Return name -> class, enum or function, by the names used in JSON."""
    return {name_of(thing): thing for thing in things}
