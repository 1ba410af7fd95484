"""The plan of a search, from a tune config; everything is checked before training starts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

from xdpx.config import catalogue
from xdpx.config.config_files import resolve_path
from xdpx.config.faults import ConfigError, Fault, Origin
from xdpx.config.hints import shown
from xdpx.config.loading import RUN_ONLY_KEYS, Run, fingerprint, load
from xdpx.config.overrides import ORIGIN
from xdpx.config.reading import read_runs
from xdpx.config.relative import resolve
from xdpx.config.selection import Pick
from xdpx.datasets import store
from xdpx.runs.length import Length, length_of
from xdpx.search.journal import DATA, Journal, facts_of
from xdpx.search.schedules import Budget
from xdpx.search.search import Search, make_search
from xdpx.search.spaces import Categorical, Dimension, Float, Int, Space, Value, Values
from xdpx.search.trials import Direction
from xdpx.tuning.parameters import EQUAL_IN_FOLDS, KEPT_FROM_TRIALS, TuneParameters
from xdpx.tuning.stages import Stage
from xdpx.utils import io
from xdpx.utils.metric_names import is_higher_better

FORCED: Mapping[str, Any] = {
    "save": True, "save_best_only": True, "save_last_only": False, "save_full_checkpoint": True,
    "save_above_score": None, "overwrite": False, "auto_suffix": False, "resume": "auto", "train_steps": None,
    "plots": False,
}  # fmt: skip
"""Values set for every trial, so that it can be resumed exactly; its figures are drawn by x-viz."""

IN_UPDATES = ("max_update", "eval_interval", "eval_interval_warmup", "save_interval", "tolerance", "min_steps")
"""Keys that count updates and mean samples: they follow the samples of an update, to keep trials comparable."""

OF_SCHEDULE = ("warmup_steps", "decay_steps", "num_decay_steps", "num_stable_steps", "swa_start")
"""Such keys of which whole numbers are updates, and fractions shares of a run."""

X_TRAIN: Mapping[Pick, str] = {("", "command"): "x-train"}
"""The class that is part of every trial, whatever its config selects."""

INSIDE = 0.381966
"""A place within a range of floats at which hardly a number is round."""

MOST_COUNTED = 100_000
"""Up to which number the points of a grid are counted."""

OF_SEARCH = set(FORCED) | {"save_dir", "resume", "log_file"}


@dataclass(frozen=True)
class Member:
    """One run of a trial: its fold and seed."""

    fold: int
    seed: int | None
    name: str
    """Its folder in that of the trial; '' if it is the only run of the trial."""


@dataclass(frozen=True)
class Plan:
    """The plan of a search.

    Attributes:
        run: the tune config.
        space: the search space.
        base: path of the base config.
        base_runs: its runs, one per fold, without the values of a trial.
        options: of the tuner and the schedule.
    """

    run: Run
    space: Space
    base: str
    base_runs: Sequence[Run]
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def settings(self) -> TuneParameters:
        """The keys of x-tune."""
        settings: TuneParameters = self.run.parameters("command")
        return settings

    @property
    def source(self) -> str:
        """The name of the tune config, for messages."""
        return self.run.source

    @cached_property
    def run_fingerprint(self) -> str:
        """The hash by which a loop over searches recognises a finished one."""
        return fingerprint(self.run)

    @property
    def metric(self) -> str:
        """The name of the metric by which trials are compared."""
        return str(self.base_runs[0].values["major_metric"])

    @property
    def direction(self) -> Direction:
        """Whether higher or lower scores are better: `maximize` or `minimize`."""
        return "maximize" if self.base_runs[0].values["ascending_metric"] else "minimize"

    @property
    def better(self) -> str:
        """Which scores are better, as a word: higher or lower."""
        return "higher" if self.direction == "maximize" else "lower"

    def doubts(self) -> Iterator[str]:
        """Yield warnings: a metric that may be better when lower, other rows to score, values never tried."""
        if is_higher_better(self.metric) is None and "ascending_metric" not in self.base_runs[0].origins:
            yield (
                f"ascending_metric is not set in {self.base}, so the highest {self.metric} wins. If lower is better, "
                "set ascending_metric: false; else set it to true, and this warning is gone."
            )
        rows = {folder: self._scored_rows(folder) for folder in self._folders_of_data()}
        if len(set(rows.values())) > 1:
            told = ", ".join(f"{', '.join(f'{count:,}' for count in rows[folder])} in {folder}" for folder in rows)
            yield (
                f"trials with another data_dir are scored on other rows ({told}), so their scores are not comparable. "
                "Give all of them the same held-out rows."
            )

        if self.base_runs[0].origins.get("batch_size", ORIGIN) == ORIGIN:
            size = self.base_runs[0].values["batch_size"]
            told = f"keys that count updates, such as eval_interval, are taken for one of {size}"
            yield f"{self.base} has no batch_size: {told}. Write the one that they are meant for."
        yield from self._never_tried()

    def _never_tried(self) -> Iterator[str]:
        for each in self.space.dimensions:
            if isinstance(each, Int) and (last := each.at(1.0)) < each.high:
                yield f"{each.name} is at most {last}: from {each.low} by step {each.step}, {each.high} is not reached."
        tuner, startup = self.settings.tuner, self.options.get("startup_trials", 0)
        if startup >= self.settings.max_trials:
            yield (
                f"all {self.settings.max_trials} trials are random: {tuner} begins after startup_trials ({startup}). "
                "Lower that, or raise max_trials."
            )
        if tuner != "grid":
            return
        most, points = self.settings.max_trials, self.space.grid(self.options["float_samples"])
        tried, more = list(islice(points, most)), sum(1 for _ in islice(points, MOST_COUNTED))
        if more:
            values = {name: {repr(point.get(name)) for point in tried} for name in self.space.names}
            only = [name for name in self.space.names if len(values[name]) == 1]
            told = f", with one value of {', '.join(only)}" if only else ""
            number = f"{most + more:,}" if more < MOST_COUNTED else f"more than {more:,}"
            yield (
                f"the grid has {number} points, of which max_trials allows the first {most}{told}. "
                "Raise max_trials, list fewer values, or use tuner: random."
            )

    def _folders_of_data(self) -> list[Value]:
        return [value for each in self.space.dimensions if each.name == "data_dir" for value in probes(each)]

    def _scored_rows(self, data_dir: Value) -> tuple[int, ...]:
        """Return how many rows each fold is scored on, with this data_dir."""
        runs = self.runs_of(0, point_with(self.space, {"data_dir": data_dir}))
        of_one_seed = runs[:: len(self._seeds)]
        return tuple(run.values["data_size"].get(run.values["valid_subset"], 0) for run in of_one_seed)

    @cached_property
    def length(self) -> Length:
        """The length of a whole run of the base config."""
        return length_of(self.base_runs[0])

    @cached_property
    def budget(self) -> Budget:
        """The samples of a whole run, the same for all trials."""
        length = self.length
        per_epoch = length.samples // length.per_update * length.per_update
        return Budget(length.updates * length.per_update, length.per_update, per_epoch)

    @property
    def _seeds(self) -> list[int | None]:
        return [*self.settings.seeds] if self.settings.seeds else [None]

    @cached_property
    def members(self) -> list[Member]:
        """The runs of which each trial consists."""
        folds, seeds = len(self.base_runs), self._seeds
        found = []
        for fold in range(folds):
            for seed in seeds:
                words = [f"fold_{fold}"] * (folds > 1) + [f"seed_{seed}"] * (len(seeds) > 1)
                found.append(Member(fold, seed, ".".join(words)))
        return found

    def search(self, recorded: Mapping[int, Values] | None = None) -> Search:
        """Return the search at its beginning.

        Raises:
            ConfigError: tuner or schedule do not fit the space or the length of a run.
        """
        settings = self.settings
        return make_search(
            self.space, budget=self.budget, max_trials=settings.max_trials, tuner=settings.tuner,
            schedule=settings.schedule, parallel=settings.parallel_runs, seed=settings.seed, direction=self.direction,
            recorded=recorded, **self.options,
        )  # fmt: skip

    def runs_of(
        self, trial: int, values: Values, *, as_trial: bool = True, inspect: Inspect | None = None, paths: bool = False
    ) -> list[Run]:
        """Return the runs of a trial, one for each of `members`.

        Args:
            trial: its number.
            values: its point of the space.
            as_trial: set the values of `FORCED`; else keep those of the base config, with the save_dir `best`.
            inspect: further checks of each run.
            paths: whether paths are checked.

        Raises:
            ConfigError: the base config does not allow these values.
        """
        folder = io.join(self.settings.save_dir, f"trial_{trial}" if as_trial else "best")
        forced = FORCED if as_trial else {}
        by_seed = {}
        for seed in self._seeds:
            given = dict(values) | ({} if seed is None else {"seed": seed})
            by_seed[seed] = self._runs(given, forced, inspect=inspect, paths=paths)
        return [
            replace(run, values={**run.values, "save_dir": io.join(folder, member.name) if member.name else folder})
            for member in self.members
            for run in [by_seed[member.seed][member.fold]]
        ]

    def _runs(self, given: Values, forced: Mapping[str, Any], *, inspect: Inspect | None, paths: bool) -> list[Run]:
        free = io.join(self.settings.save_dir, ".new")

        absent = {each.name for each in self.space.dimensions if each.when and each.name not in given}

        def rewrite(index: int, values: Mapping[str, Any]) -> dict[str, Any]:
            kept = {key: value for key, value in values.items() if key not in absent}
            return {**kept, **forced, "save_dir": f"{free}-{index}", **self._rescaled(index, given, kept)}

        return load(self.base, "x-train", words_of(given), inspect=inspect, paths=paths, rewrite=rewrite, apart=True)

    def _rescaled(self, index: int, given: Values, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that count updates, adapted to the number of samples per update of a trial."""
        base = self.base_runs[index]
        before = base.values["batch_size"] * base.values["update_freq"]
        factors = [given.get(key, base.values[key]) for key in ("batch_size", "update_freq")]
        if not all(isinstance(each, int | float) and each > 0 and each == int(each) for each in factors):
            return {}  # the check of the config says what is wrong with them
        now, scaled = math.prod(factors), self._of_batch_size(index, given)
        if now == before:
            return scaled
        counts = {key: base.values.get(key) for key in IN_UPDATES} | {key: written.get(key) for key in OF_SCHEDULE}
        return scaled | {
            key: max(1, round(count * before / now))
            for key, count in counts.items()
            if isinstance(count, int) and count > 0 and key not in given and key not in base.relative
        }

    def _of_batch_size(self, index: int, given: Values) -> dict[str, Any]:
        """Return the relative numbers of updates, which follow batch_size by themselves, adapted to update_freq."""
        base = self.base_runs[index]
        before, now = base.values["update_freq"], given.get("update_freq", base.values["update_freq"])
        counts = {
            key: resolve(text, {**base.values, **given}, key=key)
            for key, text in base.relative.items()
            if now != before and key in (*IN_UPDATES, *OF_SCHEDULE) and key not in given
        }
        return {
            key: max(1, round(count * before / now))
            for key, count in counts.items()
            if isinstance(count, int) and count > 0
        }

    def stages_of(self, runs: Sequence[Run], trial: int, samples: int) -> list[Stage]:
        """Return the stages that train a trial until it has seen so many samples."""
        stages = []
        for member, run in zip(self.members, runs, strict=True):
            length = length_of(run)
            until = -(-samples // length.per_update) if samples < self.budget.total else length.updates
            name = f"trial_{trial}" + (f".{member.name}" if member.name else "")
            stages.append(Stage(name, run, min(until, length.updates), length.updates))
        return stages

    def facts(self) -> dict[str, Any]:
        """Return all that determines decisions and scores; it must be unchanged when a search is resumed."""
        bases = [{key: run.values[key] for key in run.values if key not in RUN_ONLY_KEYS} for run in self.base_runs]
        text = json.dumps(bases, sort_keys=True, ensure_ascii=True, default=repr)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        own = {"seeds": self.settings.seeds, "base_config": f"of digest {digest}", DATA: self._digests_of_data()}
        return {**facts_of(self.search()), **own}

    def _digests_of_data(self) -> dict[str, str]:
        """Return the SHA-256 of each file that trials are trained or scored on, by path; those without are left out."""
        found: dict[str, str | None] = {}
        for run in self.base_runs:
            dataset, splits = run.parameters("dataset"), {*length_of(run).shards, run.values["valid_subset"]}
            for folder in (run.values["data_dir"], *self._folders_of_data()):
                paths = [dataset.model_copy(update={"data_dir": folder}).path_of(split) for split in sorted(splits)]
                found |= {path: store.digest(path) for path in paths if path not in found}
        return {path: known for path, known in found.items() if known is not None}

    def journal(self) -> Journal:
        """Return the journal of the search, not yet opened."""
        return Journal(self.settings.save_dir, facts=self.facts(), build=self.search)


Inspect = Callable[[Run], Iterable[Fault]]


def words_of(values: Mapping[str, Any]) -> list[str]:
    """Return values as the `key=value` words that set them."""
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]


def make_plan(run: Run, *, inspect: Inspect | None = None) -> Plan:
    """Return the plan of a checked tune config.

    Args:
        run: the tune config.
        inspect: checks each value of the space in a config of x-train; None: no check.

    Raises:
        ConfigError: with every fault of the three configs.
        OSError: one of them could not be reached.
    """
    settings: TuneParameters = run.parameters("command")
    errors: list[Fault] = []
    asked = {key: run.origins.get(key, ORIGIN) for key in ("space_config", "base_config")}
    space_path = resolve_path(settings.space_config, beside=run.source)
    space = _caught(errors, "space_config", lambda: read_space(space_path, asked=asked["space_config"]))
    base = resolve_path(settings.base_config, beside=run.source)
    raws = _caught(errors, "base_config", lambda: read_runs(base, asked=asked["base_config"]))
    if space is not None:
        errors += _forbidden(space, settings)
    if raws is not None and len(raws) > 1 and not settings.folds:
        remedy = "Make it one run, or set folds: true, so that each trial trains all of them."
        errors.append(Fault("base_config", f"'{settings.base_config}' describes {len(raws)} runs.", remedy))
    if raws is not None and len(raws) == 1 and settings.folds:
        problem = f"is true, but '{settings.base_config}' is one run: there are no folds to take the mean over."
        errors.append(Fault("folds", problem, "Leave it out, or let the base config loop over the folds."))
    if errors or space is None or raws is None:
        raise ConfigError(run.source, errors)
    options = {
        item.key: run.values[item.key]
        for kind in ("tuner", "schedule")
        for item in catalogue.entry(kind, run.values[kind]).parameters
        if item.key in run.values
    }
    written = raws[0].values
    while True:
        given = _lacking(space, written)
        found: list[Fault] = []
        base_runs = _caught(found, "base_config", partial(_base_runs, base, settings, given))
        unknown = [each for each in space.dimensions if f"base_config: {each.name}" in {fault.key for fault in found}]
        errors += [_as_space_fault(fault, space) for fault in found]
        if base_runs is not None or not unknown or len(unknown) == len(space.dimensions):
            break
        space = Space(_without(space.dimensions, {each.name for each in unknown}), source=space.source)
    if base_runs is not None:
        plan = Plan(run, space, base, base_runs, options)
        errors += _incomparable(plan)
        errors += [] if inspect is None else value_faults(plan, inspect=inspect)
    if errors or base_runs is None:
        raise ConfigError(run.source, errors)
    return plan


def _as_space_fault(fault: Fault, space: Space) -> Fault:
    """Return a fault of a parameter of the space as a fault of the space config, where it is written."""
    name = fault.key.removeprefix("base_config: ")
    return replace(fault, key=f"space_config: {name}", origin=None) if name in space.names else fault


def _without(dimensions: Sequence[Dimension], names: set[str]) -> list[Dimension]:
    """Return the dimensions without those of these names and those that depend on them."""
    kept = [each for each in dimensions if each.name not in names]
    lost = {each.name for each in kept if names & set(each.when)}
    return _without(kept, lost) if lost else kept


def _lacking(space: Space, written: Mapping[str, Any]) -> Values:
    """Return a value of each parameter that the base config lacks, if it exists with the values written there.

    Not of `update_freq`: its default is what the base means where it counts updates.
    """
    values: Values = {}
    for dimension in space.dimensions:
        if dimension.name not in (*written, "update_freq") and dimension.holds({**written, **values}):
            values[dimension.name] = dimension.at(0.5)
    return values


def _base_runs(base: str, settings: TuneParameters, given: Values) -> list[Run]:
    free = io.join(settings.save_dir, ".new")
    words = words_of(given)

    def rewrite(index: int, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**values, **FORCED, "save_dir": f"{free}-{index}"}

    return load(base, "x-train", words, rewrite=rewrite, apart=True)


def _caught(errors: list[Fault], key: str, work: Callable[[], Any]) -> Any:
    """Return the result of `work`; if it raises ConfigError, None, with the faults added to `errors` under a key."""
    try:
        return work()
    except ConfigError as error:
        errors += [
            replace(fault, key=key if fault.key == "config" else f"{key}: {fault.key}", code=_code(fault))
            for fault in error.faults
        ]
    return None


def _code(fault: Fault) -> Any:
    return "missing_path" if fault.key == "config" else fault.code


def read_space(path: str, *, asked: Origin = ORIGIN) -> Space:
    """Return the search space that a config describes; `asked` is where its path was written.

    Raises:
        ConfigError: with all faults of the config.
    """
    raws = read_runs(path, asked=asked)
    faults = [*(fault for raw in raws for fault in raw.faults)]
    if len(raws) > 1:
        faults.append(Fault("__parent__", f"describes {len(raws)} spaces.", "Write one."))
    if faults:
        raise ConfigError(raws[0].source, faults)
    return Space.read(raws[0].values, source=raws[0].source)


def _forbidden(space: Space, settings: TuneParameters) -> Iterator[Fault]:
    """Yield a fault for each parameter of a space that trials must not change."""
    for name in space.names:
        key = f"space_config: {name}"
        if name in KEPT_FROM_TRIALS:
            yield Fault(key, "cannot be searched: trials are compared at equal samples.", "Remove it.")
        elif "score" in altered_by(name, X_TRAIN):
            yield _of_scores(name)
        elif name in OF_SEARCH:
            yield Fault(key, "is decided by the search itself.", "Remove it.")
        elif name == "seed" and settings.seeds:
            yield Fault(key, "contradicts seeds, which lists the seeds that each trial is trained with.", "Remove one.")


def _incomparable(plan: Plan) -> Iterator[Fault]:
    """Yield a fault for settings with which scores are not comparable: other scores or losses, unlike folds."""
    for dimension in plan.space.dimensions:
        name, altered = dimension.name, _altered(plan, dimension)
        if "score" in altered:
            yield _of_scores(name)
        elif "loss" in altered and plan.metric == "loss":
            how = "each loss computes differently" if name == "loss" else f"{name} changes for the same predictions"
            problem = f"cannot be searched by major_metric: loss, which {how}."
            yield Fault(f"space_config: {name}", problem, "Use another metric, e.g. major_metric: acc.")
    for key in EQUAL_IN_FOLDS:
        values = list(dict.fromkeys(run.values[key] for run in plan.base_runs))
        if len(values) > 1:
            problem = f"is {shown(values)} in different folds, so their scores cannot be averaged."
            yield Fault(f"base_config: {key}", problem, "Use the same for all folds.")


def _of_scores(name: str) -> Fault:
    problem = "cannot be searched: all trials are ranked by one score."
    return Fault(f"space_config: {name}", problem, "Set it in the base config.")


def _altered(plan: Plan, dimension: Dimension) -> set[str]:
    """Return what a parameter alters beside the model, as the classes that read it in this search declare."""
    try:
        run = plan.runs_of(0, point_with(plan.space, {dimension.name: probes(dimension)[0]}))[0]
    except ConfigError:  # reported with the other faults of the value
        run = plan.base_runs[0]
    return altered_by(dimension.name, run.picks)


def altered_by(key: str, picks: Mapping[Pick, str]) -> set[str]:
    """Return what a key alters beside the model, by the declarations of these classes: score, loss."""
    return {
        item.alters
        for (prefix, kind), name in picks.items()
        for item in catalogue.entry(kind, name).parameters
        if prefix + item.key == key and item.alters
    }


def point_with(space: Space, wanted: Mapping[str, Any] | None = None) -> Values:
    """Return a point at which some parameters exist and have these values; others have the middle of their range."""
    wanted = dict(wanted or {})
    for dimension in reversed(space.dimensions):
        if dimension.name in wanted:
            for other, allowed in dimension.when.items():
                wanted.setdefault(other, allowed[0])
    values: Values = {}
    for dimension in space.dimensions:
        if dimension.name in wanted:
            values[dimension.name] = wanted[dimension.name]
        elif dimension.holds(values):
            values[dimension.name] = dimension.at(0.5)
    return values


def probes(dimension: Dimension) -> list[Any]:
    """Return the values of a parameter to check with the base config: each listed one, or both ends of a range.

    For a float also one in between: both ends of [16, 64] are integers, but nearly all drawn numbers are not.
    """
    if isinstance(dimension, Categorical):
        return list(dimension.values)
    between = [dimension.at(INSIDE)] if isinstance(dimension, Float) else []
    return [dimension.at(0.0), dimension.at(1.0), *between]


def value_faults(plan: Plan, *, inspect: Inspect) -> list[Fault]:
    """Return the faults of the values of the space in the base config, each value checked by itself."""
    found: dict[str, list[tuple[bool, Fault]]] = {}
    for dimension in plan.space.dimensions:
        for value in probes(dimension):
            point = point_with(plan.space, {dimension.name: value})
            try:
                plan.runs_of(0, point, inspect=inspect, paths=True)
            except ConfigError as error:
                for fault in error.faults:
                    of_another = fault.key != dimension.name
                    found.setdefault(str(fault), []).append((of_another, _of_value(fault, dimension, value, plan)))
    return [min(same, key=lambda each: each[0])[1] for same in found.values()]


def _of_value(fault: Fault, dimension: Dimension, value: Any, plan: Plan) -> Fault:
    if fault.key == dimension.name:
        return replace(fault, key=f"space_config: {fault.key}", origin=None)
    remedy = f"{fault.remedy} (with {dimension.name}: {value})".lstrip()
    if fault.key in plan.space.names:
        return replace(fault, key=f"space_config: {fault.key}", origin=None, remedy=remedy)
    return replace(fault, key=f"base_config: {fault.key}", remedy=remedy)
