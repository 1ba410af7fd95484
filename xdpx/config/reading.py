"""Read a config file into the flat values of its runs, each value with the file and line it came from.

    path, key=value ... -> files -> parents and loops -> overrides -> ${references} -> RawRun

Types are not checked here, but in `checking`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from xdpx.config.config_files import VERSION, ConfigFiles, shown
from xdpx.config.faults import ConfigError, Fault, Origin, did_you_mean
from xdpx.config.inheritance import IGNORE, PARENT, Family, ParentPlace, TooManyRuns
from xdpx.config.located import MAX_VALUES, Located, Table, TooLarge, holds_meta, origins, plain
from xdpx.config.overrides import COMMAND_LINE, ORIGIN, Override, apply_overrides, read_overrides
from xdpx.config.substitution import DEFINITIONS, Substitution, macros_of

PLATFORM_KEYS = ("__gpu__", "__cpu__", "__memory__", "__worker__", "__pytorch__", "__v100__")
"""What a run requests from a cluster when it is submitted; not parameters of any class."""

SPECIAL_KEYS = (PARENT, IGNORE, DEFINITIONS, VERSION, *PLATFORM_KEYS)

MAX_SHOWN = 10
"""Maximum number of faults in one message, so that it fits on a screen."""


@dataclass(frozen=True)
class RawRun:
    """One run as written, with all references resolved, before types are checked.

    Attributes:
        source: the config file.
        index: position of the run among those of the file, from 0.
        values: plain Python values by key. `@{...}` is still text.
        origins: where each value was written: `key`, `key.inner`, `key[0]`.
        meta_keys: keys that come from a meta.hjson and are not overridden.
        from_data: those, and keys that are only partly overridden.
        from_machine: keys whose value a built-in name gave.
        faults: problems of a readable run, e.g. an unknown `${name}` or a comment read as text. Their keys may hold
            placeholder values. Callers must report these faults.
        platform: what the run requests from a cluster, without underscores: gpu, cpu, memory, worker, pytorch, v100.
        version: the version of x-prepro that wrote the metadata, or None.
        referred: names used in `${name}`.
        files: the configs that all runs of the file were read from, without metadata of data.
    """

    source: str
    index: int
    values: dict[str, Any]
    origins: dict[str, Origin]
    meta_keys: frozenset[str] = frozenset()
    from_data: frozenset[str] = frozenset()
    from_machine: frozenset[str] = frozenset()
    faults: tuple[Fault, ...] = ()
    platform: dict[str, Any] = field(default_factory=dict)
    version: str | None = None
    referred: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()


def read_runs(path: str, overrides: Sequence[str] = (), *, asked: Origin = ORIGIN, apart: bool = False) -> list[RawRun]:
    """Return the runs of a config: hjson, JSON or YAML, suffix optional, local or remote.

    Args:
        path: the config file; '' to use only the overrides.
        overrides: `key=value` texts, which take precedence over all files.
        asked: where the path was written.
        apart: whether overrides may set a key without the macro of its name that the config uses for it and elsewhere.

    Returns:
        One `RawRun` per run, in the order of execution; at least one.

    Raises:
        ConfigError: a file, a parent or an override cannot be read; with all faults found so far.
        OSError: a disk or network failed.
    """
    files = ConfigFiles()
    settings, faults = read_overrides(overrides)
    files.fatal.extend(faults)
    found = files.find(str(path), asked, "config") if path else None
    tables = _merged(found, settings, files) if found else [{}]
    if files.fatal:
        raise ConfigError(str(path) or COMMAND_LINE, at_most(list(dict.fromkeys([*files.faults, *files.fatal]))))
    source = shown(found) if found else COMMAND_LINE
    runs = [_run(source, index, table, settings, files.faults) for index, table in enumerate(tables)]
    if not apart:
        runs = [
            replace(run, faults=(*run.faults, *_parted_from_macros(settings, table, run.referred)))
            for run, table in zip(runs, tables, strict=True)
        ]
    idle = _idle_macros(settings, tables, files.referred.union(*(run.referred for run in runs)))
    return [replace(run, faults=(*run.faults, *idle), files=tuple(files.written)) for run in runs]


def at_most(faults: Sequence[Fault], shown_faults: int = MAX_SHOWN) -> list[Fault]:
    """Return the first faults, and one that says how many more there are."""
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
    """Return a run from its merged table: apply overrides, resolve references, and separate the special keys."""
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
        from_machine=frozenset(key for key, located in parameters.items() if located.from_machine),
        faults=tuple(dict.fromkeys([*faults, *too_large])),
        platform={key.strip("_"): plain(resolved[key]) for key in PLATFORM_KEYS if key in resolved},
        version=str(resolved[VERSION].value) if VERSION in resolved else None,
        referred=frozenset(substitution.names),
    )


def _idle_macros(settings: Sequence[Override], tables: Sequence[Table], used: Set[str]) -> list[Fault]:
    """Return a fault for each macro set on the command line to which nothing refers, e.g. a misspelt one."""
    asked = [override.keys[1] for override in settings if override.keys[0] == DEFINITIONS and override.keys[1:]]
    roots = {name.partition(".")[0] for name in used}
    known = sorted(roots & {name for table in tables for name in macros_of(table)})
    faults = []
    for name in (name for name in asked if name not in roots):
        remedy = did_you_mean(name, known, f"Write ${{{name}}} where it is to be used.")
        faults.append(Fault(f"{DEFINITIONS}.{name}", f"changes nothing: there is no ${{{name}}}.", remedy, ORIGIN))
    return faults


def _parted_from_macros(settings: Sequence[Override], before: Table, used: Set[str]) -> list[Fault]:
    """Return a fault for each key that the command line sets beside the macro of its name, which the file gives it."""
    asked = {override.keys for override in settings}
    faults = []
    for name in (keys[0] for keys in asked if len(keys) == 1 and (DEFINITIONS, keys[0]) not in asked):
        linked = name in before and before[name].value == f"${{{name}}}" and name in macros_of(before)
        if linked and name in used:
            problem = f"would differ from {DEFINITIONS}.{name}, which its config sets it to and uses elsewhere, too."
            faults.append(Fault(name, problem, f"Set {DEFINITIONS}.{name}=... instead, or both.", ORIGIN))
    return faults


def _plain_values(table: Table) -> tuple[dict[str, Any], list[Fault]]:
    budget = iter(range(MAX_VALUES))
    values, faults = {}, []
    for key, located in table.items():
        try:
            values[key] = plain(located, budget)
        except TooLarge as error:
            faults.append(Fault(key, str(error), "Use fewer references.", located.origin))
    return values, faults


def _bad_definitions(table: Table) -> list[Fault]:
    located = table.get(DEFINITIONS, Located({}, Origin(COMMAND_LINE)))
    if isinstance(located.value, dict):
        return []
    return [Fault(DEFINITIONS, "is not a dict.", "Write `__def__: { name: value }`.", located.origin)]


def _unknown_special(table: Table) -> list[Fault]:
    """Return a fault for each unknown `__name__`, e.g. a misspelt `__parents__`."""
    faults = []
    for key, located in table.items():
        if key.startswith("__") and key not in SPECIAL_KEYS:
            remedy = did_you_mean(key, SPECIAL_KEYS, f"The special keys are {', '.join(SPECIAL_KEYS)}.")
            faults.append(Fault(key, "is not a special key.", remedy, located.origin))
    return faults
