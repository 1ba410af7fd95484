"""How a class declares what can be configured about it: type, default, bounds, one line of meaning."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from xdpx.config.declarations import Entry, Metric, declarations_of, metrics_of, sound_default

Operator = Literal["is", "is not", "in", ">", "<"]
PathCheck = Literal["file", "directory", "new_directory"]


class When(NamedTuple):
    """A parameter exists only while another parameter holds a certain value."""

    key: str
    operator: Operator
    value: Any


class Parameters(BaseModel):
    """Base of every nested `class Parameters`. Strict: text is never turned into numbers; ints pass as floats.

    Each field is made with `param`. A value of None is accepted only where the annotation says so.
    Override `conflicts` for rules between several fields. Where the module of a class imports torch, the Parameters
    that define `conflicts` stand in a module of their own that does not: every check of a config looks at conflicts.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    def conflicts(self) -> list[tuple[str, str]]:
        """Return (key, what is wrong and what to do) for each rule between fields that is broken."""
        return []

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Hold defaults to their types where the class is written: later, a config would be blamed for them."""
        super().__pydantic_init_subclass__(**kwargs)
        sound = {key: sound_default(cls, key) for key, info in cls.model_fields.items() if not info.is_required()}
        changed = {key: value for key, value in sound.items() if repr(value) != repr(cls.model_fields[key].default)}
        for key, value in changed.items():
            cls.model_fields[key].default = value
        if changed:
            cls.model_rebuild(force=True)

    @model_validator(mode="after")
    def _within_bounds(self) -> Self:
        """Hold the bounds for parameters built by hand; those of a config are checked before, with better words."""
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
    unique: bool = False,
    group: str | None = None,
) -> Any:
    """Declare one parameter.

    Args:
        default: the value when the config is silent; leave it out for a required parameter.
        doc: one line that says what the value decides, with its unit.
        gt: lower bound (exclusive) of a number, or of every number in a list.
        ge: lower bound (inclusive).
        lt: upper bound (exclusive).
        le: upper bound (inclusive).
        when: (key, operator, value): the parameter is allowed only while that condition holds.
        registry: the value names an entry of this registry, whose own `Parameters` then join the run. A key that ends
            with the registry's name gives the rest as prefix: `teacher_model` reads `teacher_hidden_size` and so on.
        metric_of: the value names a metric of the class picked from this registry. It is checked where that class says
            which it gives, in `metric_names`: {name or pattern: None, or the (key, operator, value) it depends on}.
        relative: accepts `@{batch_size:64}/50` as well; "inverse" shrinks as the reference grows, "direct" grows.
        path: what must be true of the path before the run starts.
        unique: must differ between the runs of one config.
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
        "group": group,
    }
    extra = {key: value for key, value in extra.items() if value is not None}
    return Field(default, description=doc, json_schema_extra={"xdpx": extra})


def entry_of(kind: str, name: str, thing: object) -> Entry:
    """Read what a class declares. A class without `Parameters` declares nothing.

    Raises:
        TypeError: a field was not made with `param`, or its type is none that a config value can have.
    """
    doc = (getattr(thing, "__doc__", None) or "").strip().partition("\n")[0]
    declared = getattr(thing, "Parameters", None)
    metrics = _metrics_of(thing)
    if declared is None:
        return Entry(kind, name, doc, metrics=metrics)
    if not (isinstance(declared, type) and issubclass(declared, Parameters)):
        raise TypeError(f"{kind} '{name}': its Parameters must inherit xdpx.config.parameters.Parameters.")
    owner = next(one for one in declared.__mro__ if "conflicts" in vars(one))
    place = "" if owner is Parameters else f"{owner.__module__}:{owner.__qualname__}"
    return Entry(kind, name, doc, place, declarations_of(declared), metrics)


def _metrics_of(thing: object) -> tuple[Metric, ...] | None:
    """Return the metrics a class says it has. A class that computes others than its parent must say so anew."""
    definers = [one for one in getattr(thing, "__mro__", ()) if {"metrics", "metric_names"} & vars(one).keys()]
    said = vars(definers[0]).get("metric_names") if definers else None
    return None if said is None else metrics_of(said)
