"""Load a config file into its runs, checked and typed; or raise one error with the faults of all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xdpx.config import checking
from xdpx.config.checking import Draft
from xdpx.config.declarations import texts_in
from xdpx.config.faults import ConfigError, Fault, Origin, first_few, merge_faults
from xdpx.config.registry import made, registry_of
from xdpx.config.selection import Pick, condition_holds

RUN_ONLY_KEYS = frozenset(
    {
        "resume",
        "overwrite",
        "auto_suffix",
        "save_dir",
        "nproc",
        "distributed_world_size",
        "distributed_rank",
        "distributed_init_method",
        "local_rank",
        "device_id",
        "max_restarts",
        "save_in_background",
        "memory_copy_interval",
        "hang_seconds",
        "viz_ref_dir",
        "log_file",
        "report_to",
        "plots",
        "figext",
        "data_size",
        "train_steps",
        "num_shards",
        "shard_index",
        "workers",
    }
)
"""Keys that do not change what a run computes: two runs that differ only in these are duplicates."""


@dataclass(frozen=True)
class Run:
    """One run of one command: its values, flat and complete. Plain data, so that it can be pickled."""

    command: str
    source: str
    index: int
    """Position among the runs of its config, from 0."""
    values: Mapping[str, Any]
    changed: frozenset[str]
    origins: Mapping[str, Origin]
    picks: Mapping[Pick, str]
    relative: Mapping[str, str] = field(default_factory=dict)
    """Key -> the `@{...}` text that its number was computed from."""
    meta_keys: frozenset[str] = frozenset()
    """Keys whose value came from a meta.hjson."""
    total: int = 1
    """Number of runs of the config."""
    awaits: bool = False
    """Whether it reads from a folder that an earlier run of the config writes; its files are checked in its turn."""

    def parameters(self, kind: str, prefix: str = "") -> Any:
        """Return the typed `Parameters` of the class selected for `kind`; kind "command" is the command itself.

        Raises:
            KeyError: the run uses no class of that kind and prefix.
        """
        return checking.typed(self.picked(kind, prefix).Parameters, prefix, self.values)

    def picked(self, kind: str, prefix: str = "") -> Any:
        """Return the class selected for `kind`, importing it if necessary. Raises KeyError as `parameters` does."""
        if (prefix, kind) not in self.picks:
            raise KeyError(
                f"{self.source}: this {self.command} run uses no {prefix}{kind}; it uses {dict(self.picks)}."
            )
        return registry_of(kind)[self.picks[prefix, kind]]

    def build(self, kind: str, prefix: str = "", **collaborators: Any) -> Any:
        """Return an object of the class selected for `kind`, built from its parameters and `collaborators`."""
        return made(kind, self.picked(kind, prefix), self.parameters(kind, prefix), **collaborators)


def load(
    path: str,
    command: str,
    overrides: Sequence[str] = (),
    *,
    inspect: Callable[[Run], Iterable[Fault]] | None = None,
    paths: bool = True,
    rewrite: Callable[[int, Mapping[str, Any]], Mapping[str, Any]] = lambda index, values: values,
    in_order: bool = False,
    apart: bool = False,
) -> list[Run]:
    """Return every run of a config, checked for `command`.

    Args:
        path: the config; its suffix may be omitted; '' for none.
        command: registered name of the command, e.g. `x-train`.
        overrides: `key=value` arguments that override the file.
        inspect: further checks of runs without faults so far, such as the command's own `check`.
        paths: whether to check that paths exist or can be created.
        rewrite: takes the index of a run and its values, and returns the values to check; unlike overrides, it is
            applied after references are resolved.
        in_order: whether each run begins when those before it have ended, so that it may read files that they write.
        apart: as for `read_runs`.

    Raises:
        ConfigError: with all faults of all runs.
        OSError: the config or a file system could not be reached.
    """
    from xdpx.config.reading import read_runs

    raws = read_runs(path, overrides, apart=apart)
    drafts = [
        checking.check(
            command,
            rewrite(raw.index, raw.values),
            origins=raw.origins,
            meta_keys=raw.meta_keys,
            from_data=raw.from_data,
            from_machine=raw.from_machine,
            referred=raw.referred,
        ).including(raw.faults)
        for raw in raws
    ]
    source = raws[0].source if raws else path
    return _finish(drafts, source, inspect=inspect, paths=paths, in_order=in_order)


def resolve(
    values: Mapping[str, Any],
    command: str,
    *,
    source: str,
    strict: bool = True,
    paths: bool = True,
    unruled: frozenset[str] = frozenset(),
) -> Run:
    """Return a run from flat values, such as those of an args.py, after checking them.

    Args:
        values: flat, without references or loops.
        command: registered name of the command.
        source: where the values come from, for messages.
        strict: whether a key that the command does not use is a fault; otherwise it is dropped.
        paths: whether to check that paths exist or can be created.
        unruled: kinds of classes whose `conflicts` are not checked, so that their modules are not imported.

    Raises:
        ConfigError: with all faults.
        OSError: a file system could not be reached.
    """
    draft = checking.check(command, values, origins={}, meta_keys=frozenset(), strict=strict)
    return _finish([draft], source, inspect=None, paths=paths, unruled=unruled)[0]


def _finish(
    drafts: list[Draft],
    source: str,
    *,
    inspect: Callable[[Run], Iterable[Fault]] | None,
    paths: bool,
    unruled: frozenset[str] = frozenset(),
    in_order: bool = False,
) -> list[Run]:
    """Return the runs after the checks that need complete values and those between runs.

    Raises:
        ConfigError: with all faults together.
        OSError: a file system could not be reached, and there is no fault.
    """
    unreachable = _check_further(drafts) if paths else None
    for draft in drafts:
        draft.faults.extend(checking.conflicts(draft, unruled=unruled))
    before = _written_before(drafts) if in_order else [frozenset[str]()] * len(drafts)
    runs = [_run(draft, source, index, len(drafts), before[index]) for index, draft in enumerate(drafts)]
    faults = [_not_awaited(draft.faults, run, before[run.index]) for draft, run in zip(drafts, runs, strict=True)]
    between = batch_faults(drafts, runs)
    if inspect is not None and unreachable is None:
        for run, found in zip(runs, faults, strict=True):
            found.extend([] if found else _not_awaited(_placed(inspect(run), run), run, before[run.index]))
        if len(runs) > 1 and not any(faults):
            between = between or _files_of_several(runs)
    if any(faults) or between:
        from xdpx.config.reading import at_most

        raise ConfigError(source, at_most([*merge_faults(faults), *between]))
    if unreachable is not None:
        raise unreachable
    return runs


def _placed(faults: Iterable[Fault], run: Run) -> list[Fault]:
    """Return faults with missing origins filled in from the run."""
    return [fault if fault.origin else replace(fault, origin=run.origins.get(fault.key)) for fault in faults]


def _check_further(drafts: list[Draft]) -> OSError | None:
    """Check the paths of all runs; return the last error of an unreachable file system, which is raised at the end."""
    from xdpx.config.path_checks import PathFindings, check_paths

    seen: PathFindings = {}
    unreachable: OSError | None = None
    for draft in drafts:
        try:
            draft.faults.extend(check_paths(draft, seen))
        except OSError as error:
            unreachable = error
    return unreachable


def _written_before(drafts: Sequence[Draft]) -> list[frozenset[str]]:
    """Return for each run the folders that the runs before it write, as absolute paths."""
    from xdpx.utils import io

    written: list[frozenset[str]] = [frozenset()]
    for draft in drafts:
        folders = [draft.values.get(key) for key in draft.selection.new_folders()]
        written.append(written[-1] | {io.abspath(path) for path in folders if isinstance(path, str) and path})
    return written[:-1]


def _is_in(path: str, folders: frozenset[str]) -> bool:
    """Return whether a path lies in one of the folders, or is one."""
    from xdpx.utils import io

    parts = io.abspath(path).split("/")
    return any("/".join(parts[:end]) in folders for end in range(len(parts), 0, -1))


def _reads_from(draft: Draft, folders: frozenset[str]) -> bool:
    """Return whether a run names a file in these folders, other than by the keys of its own output."""
    if not folders:
        return False
    own = draft.selection.new_folders()
    values = [value for key, value in draft.values.items() if key not in own]
    return any("/" in text and _is_in(text, folders) for text in texts_in(values))


def _not_awaited(faults: Iterable[Fault], run: Run, before: frozenset[str]) -> list[Fault]:
    """Return the faults without those of missing files that an earlier run may write."""
    if not before:
        return list(faults)
    named = {path for value in run.values.values() for path in texts_in(value) if "/" in path}
    awaited = [f"'{path}'" for path in named if _is_in(path, before)]
    return [
        fault for fault in faults if fault.code != "missing_path" or not any(path in fault.problem for path in awaited)
    ]


def _run(draft: Draft, source: str, index: int, total: int, before: frozenset[str]) -> Run:
    return Run(
        command=draft.selection.classes[0].entry.name,
        source=source,
        index=index,
        values=draft.values,
        changed=frozenset(draft.changed),
        origins={key: origin for key, origin in draft.origins.items() if key in draft.values},
        picks=draft.selection.picks(),
        relative=draft.relative,
        meta_keys=draft.meta_keys & frozenset(draft.values),
        total=total,
        awaits=_reads_from(draft, before),
    )


def batch_faults(drafts: Sequence[Draft], runs: Sequence[Run]) -> list[Fault]:
    """Return faults between the runs of one config: shared outputs, or if there are none, duplicate runs."""
    if len(runs) < 2:
        return []
    outputs: dict[str, list[Run]] = {}
    for draft, run in zip(drafts, runs, strict=True):
        for key, _, item in draft.selection.declared():
            if item.unique is True or (item.unique and condition_holds(item.unique, run.values.get(item.unique[0]))):
                outputs.setdefault(key, []).append(run)
    faults = [
        fault
        for key in sorted(outputs)
        for fault in _shared(key, [(run, _texts(run.values.get(key))) for run in outputs[key]])
    ]
    return faults or _same_run_twice(runs, RUN_ONLY_KEYS if "save_dir" in outputs else frozenset())


def _texts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else [value]


def _files_of_several(runs: Sequence[Run]) -> list[Fault]:
    """Return a fault for each file that several runs write, if their command has `files_written`: {key: files}."""
    written: dict[str, list[tuple[Run, Iterable[str]]]] = {}
    for run in runs:
        command = run.picked("command")
        files = command(run).files_written() if hasattr(command, "files_written") else {}
        for key, paths in files.items():
            written.setdefault(key, []).append((run, paths))
    return [fault for key in sorted(written) for fault in _shared(key, written[key])]


def _shared(key: str, written: Sequence[tuple[Run, Iterable[Any]]]) -> list[Fault]:
    """Return a fault for each output of a key that several runs write, however each of them writes the path."""
    from xdpx.utils import io

    users: dict[str, dict[int, tuple[Run, str]]] = {}
    for run, paths in written:
        for path in paths:
            if isinstance(path, str) and path:
                users.setdefault(io.abspath(path), {})[run.index] = run, path
    faults = []
    for sharing in users.values():
        if len(sharing) > 1:
            first, path = next(iter(sharing.values()))
            problem = f"'{path.rstrip('/')}' is shared by runs {_numbers([*sharing])} of {first.total}."
            remedy = "Make it differ, e.g. include ${...} of a key that varies."
            faults.append(Fault(key, problem, remedy, first.origins.get(key)))
    return faults


def _same_run_twice(runs: Sequence[Run], without: frozenset[str]) -> list[Fault]:
    alike: dict[str, list[int]] = {}
    for run in runs:
        alike.setdefault(_digest(run, without), []).append(run.index)
    return [
        Fault(f"runs {_numbers(indices)}", "are identical.", "Vary something, or remove the duplicate.")
        for indices in alike.values()
        if len(indices) > 1
    ]


def _numbers(indices: list[int]) -> str:
    return first_few((str(index + 1) for index in indices), 4)


def fingerprint(run: Run) -> str:
    """Return a SHA-256 of what determines the results of a run: its command and values, without `RUN_ONLY_KEYS`."""
    return _digest(run, RUN_ONLY_KEYS)


def _digest(run: Run, without: frozenset[str]) -> str:
    kept = {key: value for key, value in run.values.items() if key not in without}
    text = json.dumps([run.command, kept], sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()
