"""Declaration of the parameters of a class: type, default, bounds, and a one-line description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from xdpx.config.declarations import Entry, Metric, declarations_of, metrics_of, sound_default

Operator = Literal["is", "is not", "in", ">", "<"]
PathCheck = Literal["file", "directory", "new_directory"]
Alters = Literal["score", "loss"]


class When(NamedTuple):
    """The condition that another parameter has a certain value."""

    key: str
    operator: Operator
    value: Any


class Parameters(BaseModel):
    """Base of every nested `class Parameters`. Strict: text is never converted to numbers; ints are accepted as floats.

    Each field is declared with `param`. None is accepted only if the annotation allows it. Override `conflicts` for
    rules between several fields. If the module of a class imports torch, put Parameters that define `conflicts` into a
    module that does not, because every check of a config imports it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    def conflicts(self) -> list[tuple[str, str]]:
        """Return (key, problem and remedy) for each violated rule between fields."""
        return []

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Check defaults against their types at the class definition; later, the config would be blamed."""
        super().__pydantic_init_subclass__(**kwargs)
        sound = {key: sound_default(cls, key) for key, info in cls.model_fields.items() if not info.is_required()}
        changed = {key: value for key, value in sound.items() if repr(value) != repr(cls.model_fields[key].default)}
        for key, value in changed.items():
            cls.model_fields[key].default = value
        if changed:
            cls.model_rebuild(force=True)

    @model_validator(mode="after")
    def _within_bounds(self) -> Self:
        """Check the bounds of parameters built in code; those of a config are checked before, with better messages."""
        for declaration in declarations_of(type(self)):
            problem = declaration.out_of_bounds(getattr(self, declaration.key))
            if problem:
                raise ValueError(f"{declaration.key}: {problem}")
        return self


def param(  # noqa: PLR0913 - one declaration, all of it keyword-only
    default: object = ...,
    *,
    doc: str,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    when: tuple[str, Operator, Any] | None = None,
    registry: str | None = None,
    metric_of: str | None = None,
    relative: Literal["inverse", "direct"] | None = None,
    path: PathCheck | None = None,
    unique: bool | tuple[str, Operator, Any] = False,
    alters: Alters | None = None,
    group: str | None = None,
) -> Any:
    """Return the declaration of one parameter, a pydantic field.

    Args:
        default: the value if the config does not set it; omit it for a required parameter.
        doc: one line that says what the value decides, with its unit.
        gt: lower bound (exclusive) of a number, or of every number in a list.
        ge: lower bound (inclusive).
        lt: upper bound (exclusive).
        le: upper bound (inclusive).
        when: (key, operator, value): the parameter is allowed only while that condition holds.
        registry: the value names an entry of this registry, whose `Parameters` are then added to the run. If the key
            ends with the registry's name, the rest is a prefix: `teacher_model` reads `teacher_hidden_size` and so on.
        metric_of: the value names a metric of the class selected from this registry. It is checked if that class
            declares `metric_names`: {name or pattern: None, or the condition (key, operator, value)}.
        relative: also accepts `@{batch_size:64}/50`; "inverse" shrinks as the reference grows, "direct" grows.
        path: check of the path before the run starts: an existing file, an existing directory, or a writable directory.
        unique: it names an output, which must differ between the runs of one config; always, or while the condition
            (key, operator, value) holds. Of a dict its values.
        alters: what its value alters beside the model, so that no search may rank trials over it: "score": what a score
            means, or which rows it is computed on; "loss": what the loss of the same predictions is.
        group: heading in the printed tree; by default the heading of the declaring class.
    """
    extra: dict[str, Any] = {
        "gt": gt,
        "ge": ge,
        "lt": lt,
        "le": le,
        "when": list(when) if when else None,
        "registry": registry,
        "metric_of": metric_of,
        "relative": relative,
        "path": path,
        "unique": unique or None,
        "alters": alters,
        "group": group,
    }
    extra = {key: value for key, value in extra.items() if value is not None}
    return Field(default, description=doc, json_schema_extra={"xdpx": extra})


def entry_of(kind: str, name: str, thing: object) -> Entry:
    """Return the catalogue entry of a class. A class without `Parameters` declares no parameters.

    Raises:
        TypeError: a field was not declared with `param`, or its type is not one of config values.
    """
    doc = (getattr(thing, "__doc__", None) or "").strip().partition("\n")[0]
    declared = getattr(thing, "Parameters", None)
    metrics = _metrics_of(thing)
    if declared is None:
        return Entry(kind, name, doc, metrics=metrics)
    if not (isinstance(declared, type) and issubclass(declared, Parameters)):
        raise TypeError("its Parameters must inherit xdpx.config.parameters.Parameters.")
    owner = next(one for one in declared.__mro__ if "conflicts" in vars(one))
    place = "" if owner is Parameters else f"{owner.__module__}:{owner.__qualname__}"
    return Entry(kind, name, doc, place, declarations_of(declared), metrics)


def _metrics_of(thing: object) -> tuple[Metric, ...] | None:
    """Return the `metric_names` of the first class in the MRO that defines them or `metrics`; None if it lacks them.

    So a class that overrides `metrics` does not inherit the names of its parent.
    """
    definers = [one for one in getattr(thing, "__mro__", ()) if {"metrics", "metric_names"} & vars(one).keys()]
    said = vars(definers[0]).get("metric_names") if definers else None
    if said is not None and not isinstance(said, Mapping):
        raise TypeError(f"its metric_names are {said!r:.60}, but must be {{name or pattern: None, or a condition}}.")
    return None if said is None else metrics_of(said)
