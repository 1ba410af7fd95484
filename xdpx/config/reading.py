"""A config file -> the flat values of every run it asks for, each with the file and line it came from.

    path, key=value ... -> files -> parents and loops -> overrides -> ${references} -> RawRun

Everything but types, which `checking` knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xdpx.config.config_files import VERSION, ConfigFiles, shown
from xdpx.config.faults import ConfigError, Fault, Origin, nearest
from xdpx.config.inheritance import IGNORE, PARENT, Family, ParentPlace, TooManyRuns
from xdpx.config.located import MAX_VALUES, Located, Table, TooLarge, holds_meta, origins, plain
from xdpx.config.overrides import COMMAND_LINE, ORIGIN, Override, apply_overrides, read_overrides
from xdpx.config.substitution import DEFINITIONS, Substitution

PLATFORM_KEYS = ("__gpu__", "__cpu__", "__memory__", "__worker__", "__pytorch__", "__v100__")
"""What a run asks of the machine it is submitted to; no parameter of any module."""

SPECIAL_KEYS = (PARENT, IGNORE, DEFINITIONS, VERSION, *PLATFORM_KEYS)

MAX_SHOWN = 10
"""Most faults in one message, so that it stays on a screen."""


@dataclass(frozen=True)
class RawRun:
    """One run as written, with all references replaced and nothing typed.

    Attributes:
        source: the config file.
        index: the place of the run among those of the file, from 0.
        values: plain Python values by key. `@{...}` is still text.
        origins: where each value was written: `key`, `key.inner`, `key[0]`.
        meta_keys: the keys that x-prepro wrote and nobody has overridden.
        from_data: those, and the keys of which only a part was overridden.
        faults: what is wrong although the run could be read, e.g. an unknown `${name}` or a swallowed comment. A key
            that has a fault here may hold a stand-in value. Whoever reads runs must report these.
        platform: what the run asks of a cluster, without underscores: gpu, cpu, memory, worker, pytorch, v100.
        version: the version of x-prepro that wrote the meta data, or None.
        referred: the names that `${name}` asked for.
        files: the configs that all runs of the file were read from, without the meta of data.
    """

    source: str
    index: int
    values: dict[str, Any]
    origins: dict[str, Origin]
    meta_keys: frozenset[str] = frozenset()
    from_data: frozenset[str] = frozenset()
    faults: tuple[Fault, ...] = ()
    platform: dict[str, Any] = field(default_factory=dict)
    version: str | None = None
    referred: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()


def read_runs(path: str, overrides: Sequence[str] = ()) -> list[RawRun]:
    """Read a config: hjson, JSON or YAML, suffix optional, local or remote.

    Args:
        path: the config file; '' for none: the overrides are all there is.
        overrides: `key=value` texts, which beat everything in the files.

    Returns:
        One `RawRun` per run, in the order in which they are to be executed; never none.

    Raises:
        ConfigError: a file, a parent or an override cannot be read; holds every such fault, and the lesser ones.
        OSError: a disk or network failed.
    """
    files = ConfigFiles()
    settings, faults = read_overrides(overrides)
    files.fatal.extend(faults)
    found = files.find(str(path), ORIGIN, "config") if path else None
    tables = _merged(found, settings, files) if found else [{}]
    if files.fatal:
        raise ConfigError(str(path) or COMMAND_LINE, at_most(list(dict.fromkeys([*files.faults, *files.fatal]))))
    source = shown(found) if found else COMMAND_LINE
    runs = [_run(source, index, table, settings, files.faults) for index, table in enumerate(tables)]
    return [replace(run, files=tuple(files.written)) for run in runs]


def at_most(faults: Sequence[Fault], shown_faults: int = MAX_SHOWN) -> list[Fault]:
    """Cut a list of faults to what fits on a screen, and say how many are left out."""
    rest = len(faults) - shown_faults
    if rest <= 0:
        return list(faults)
    return [
        *faults[:shown_faults],
        Fault("and more", f"{rest} further fault{'s' if rest > 1 else ''}.", stands_for=rest),
    ]


def _merged(path: str, settings: Sequence[Override], files: ConfigFiles) -> list[Table]:
    """Return the table of every run, with all parents merged in."""
    above, _ = apply_overrides(settings, {})  # paths of parents may refer to what the command line sets
    place = ParentPlace(path, (path,), above, {})
    family = Family(files)
    try:
        return [run for table in files.tables(path) for run in family.runs(table, place)]
    except TooManyRuns as error:
        files.fatal.append(Fault(PARENT, str(error), "Is a loop listed twice?", Origin(shown(path))))
        return []


def _run(path: str, index: int, table: Table, settings: Sequence[Override], shared: Sequence[Fault]) -> RawRun:
    """Apply the overrides, replace the references, and take out what is no parameter."""
    table, faults = apply_overrides(settings, table)
    substitution = Substitution(table)
    resolved = substitution.table()
    faults = [*shared, *faults, *_bad_definitions(table), *substitution.faults, *_unknown_special(resolved)]
    parameters = {key: located for key, located in resolved.items() if not key.startswith("__")}
    values, too_large = _plain_values(parameters)
    return RawRun(
        source=path,
        index=index,
        values=values,
        origins=origins({key: parameters[key] for key in values}),
        meta_keys=frozenset(key for key, located in parameters.items() if located.from_meta),
        from_data=frozenset(key for key, located in parameters.items() if holds_meta(located)),
        faults=tuple(dict.fromkeys([*faults, *too_large])),
        platform={key.strip("_"): plain(resolved[key]) for key in PLATFORM_KEYS if key in resolved},
        version=str(resolved[VERSION].value) if VERSION in resolved else None,
        referred=frozenset(substitution.names),
    )


def _plain_values(table: Table) -> tuple[dict[str, Any], list[Fault]]:
    budget = iter(range(MAX_VALUES))
    values, faults = {}, []
    for key, located in table.items():
        try:
            values[key] = plain(located, budget)
        except TooLarge as error:
            faults.append(Fault(key, str(error), "Refer to less.", located.origin))
    return values, faults


def _bad_definitions(table: Table) -> list[Fault]:
    located = table.get(DEFINITIONS, Located({}, Origin(COMMAND_LINE)))
    if isinstance(located.value, dict):
        return []
    return [Fault(DEFINITIONS, "is no dict.", "Write `__def__: { name: value }`.", located.origin)]


def _unknown_special(table: Table) -> list[Fault]:
    """Refuse `__names__` that nothing reads, e.g. a misspelt `__parents__`."""
    faults = []
    for key, located in table.items():
        if key.startswith("__") and key not in SPECIAL_KEYS:
            near = nearest(key, SPECIAL_KEYS)
            remedy = f"Did you mean '{near}'?" if near else f"The special keys are {', '.join(SPECIAL_KEYS)}."
            faults.append(Fault(key, "is no special key.", remedy, located.origin))
    return faults
