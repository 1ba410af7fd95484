"""`x-train <config>`: train a model, from a config to checkpoints, logs and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from xdpx.checkpoints import aliases
from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.commands import child
from xdpx.config import catalogue
from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.loading import Run
from xdpx.config.spmd_keys import SPMD, spmd_faults
from xdpx.datasets.fitting import other_columns
from xdpx.datasets.meta import altered_keys, read_meta
from xdpx.launch.environment import LaunchKeys, adopt_launch
from xdpx.logger import wrong_name
from xdpx.optimizers import NEEDED, PACKAGES
from xdpx.optimizers.lr_schedulers import steps_of
from xdpx.runs import devices, resuming, run_folder
from xdpx.runs.length import length_of, total_updates
from xdpx.runs.parameters import TrainParameters
from xdpx.tokenizers import agreement
from xdpx.training.preemption import EXIT_CODE
from xdpx.utils import hub, io
from xdpx.utils.distributed_utils import is_master


class Train:
    """Train a model on data made by x-prepro; resume, stage and compare runs."""

    class Parameters(TrainParameters):
        """The keys of `x-train`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._settings: TrainParameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults of keys and files. Needs no torch."""
        about_paths = [*self._about_weights(), *self._about_folder()]
        return [
            *self._about_data(), *self._about_meta(), *about_paths, *self._about_widths(), *self._about_callbacks(),
            *self._about_engine(), *self._about_processes(),
        ]  # fmt: skip

    def outdated(self) -> bool:
        """Return whether this very run has finished, but with data that x-prepro has rebuilt since."""
        return resuming.data_fault(self._run, self._settings) is not None

    def outlook(self) -> str:
        """Return a sentence on the number of updates, for `--dry`."""
        length = length_of(self._run)
        samples = f"{', '.join(length.shards)} has {length.samples:,}: {length.passes:.3g} passes over it"
        return f"{length.updates:,} updates of {length.per_update:,} samples; {samples}"

    def run(self) -> int:
        """Train. The exit code is 85 if a signal interrupted it and the same command can resume."""
        if adopt_launch(self._launch_keys) == 0:
            count = devices.processes_to_start(self._run, self._settings)
            if count > 1:
                return child.run_in_processes(self._run, count)
        from xdpx.runs.training import train

        return 0 if train(self._run).finished else EXIT_CODE

    @property
    def _launch_keys(self) -> LaunchKeys:
        known = self._settings
        return LaunchKeys(
            known.nproc, known.distributed_world_size, known.distributed_rank, known.local_rank,
            known.distributed_init_method,
        )  # fmt: skip

    def _about_data(self) -> Iterator[Fault]:
        settings = self._settings
        parameters = self._run.parameters("dataset")
        faults: list[Fault] = self._run.picked("dataset").check(parameters)
        yield from faults or self._about_length(parameters.choice.shards)
        splits = settings.data_size
        if splits and settings.valid_subset not in splits:
            remedy = did_you_mean(settings.valid_subset, splits, f"Available: {', '.join(sorted(splits))}.")
            if settings.valid_subset in read_meta(settings.data_dir).get("arriving", ()):
                remedy = "x-prepro has yet to make it: wait, or list it before the splits of training in data_files."
            yield Fault("valid_subset", f"there is no split '{settings.valid_subset}'.", remedy)

    def _about_meta(self) -> Iterator[Fault]:
        """Yield contradictions to the data: the meta inherited is that of another data_dir, or a key overrides it."""
        values, meta = self._run.values, read_meta(self._settings.data_dir)
        yield from altered_keys(self._settings.data_dir, meta)
        remedy = f"Inherit the meta of this data: __parent__: {io.join(self._settings.data_dir, 'meta')}."
        too_small = [key for key in ("vocab_size", "num_classes") if (values.get(key) or math.inf) < meta.get(key, 0)]
        other = [key for key in ("pad_index",) if meta.get(key, values.get(key)) != values.get(key)]
        for key in (*too_small, *other):
            yield Fault(key, f"is {values[key]}, but the data were made with {meta[key]}.", remedy)
        if (values.get("max_len") or math.inf) < meta.get("max_len", 0):  # more may be right: check_max_len measures
            problem = f"is {values['max_len']}, but x-prepro cut the samples to {meta['max_len']}; training never cuts."
            yield Fault("max_len", problem, "Remove it here, or set it in the config of x-prepro and run that again.")
        if unfit := other_columns(self._run, meta, remedy):
            yield unfit

    def _about_length(self, shards_of: Callable[[Any], list[str]]) -> Iterator[Fault]:
        from xdpx.datasets.shards import Meta

        settings = self._settings
        meta = Meta.read(settings.data_dir)
        total = total_updates(settings, [meta.sizes[shard] for shard in shards_of(meta) if shard in meta.sizes])
        blocks = ("warmup_iterations",) if settings.use_bmuf else ()
        for key in ("min_steps", "warmup_steps", "swa_start", *blocks):
            count = self._run.values.get(key) or 0
            if count > total:
                yield Fault(key, f"is {count}, but training has {total} updates.", f"Use at most {total}.")
        for key in ("adv_begin_iter", "cluster_warmup"):  # the last update without noise, or without prototypes
            count = self._run.values.get(key) or 0
            if count >= total > 0:
                problem = f"is {count}, but training has {total} updates, so it would never begin."
                yield Fault(key, problem, f"Use less than {total}.")
        decay = self._run.values.get("num_decay_steps") or 0  # of warmup_stable_decay
        left = total - steps_of(self._run.values.get("warmup_steps") or 0, total)
        if steps_of(decay, total) > left >= 0:
            problem = f"is {decay}, but after the warm-up there are {left} updates."
            yield Fault("num_decay_steps", problem, f"Use at most {left}, or a share of all updates such as 0.2.")

    def _about_weights(self) -> Iterator[Fault]:
        """Yield faults of the weights to start from; an earlier command on the same line may still write them."""
        if self._settings.resume and Checkpointer(self._settings.save_dir).state_steps():
            return  # the state to resume from contains all weights
        try:
            values = aliases.with_files(self._run.values)
        except ConfigError as error:
            yield from error.faults
            return
        for key, path in values.items():
            if not key.endswith("pretrained_model") or not path:
                continue
            if not io.exists(path):
                remedy = hub.how_to_fetch(path) or "Check the path; null starts from random weights."
                yield Fault(key, f"is '{path}', which does not exist.", remedy, code="missing_path")
            else:
                yield from self._about_agreement(key, path)

    def _about_agreement(self, key: str, path: str) -> Iterator[Fault]:
        """Yield a fault if weights were trained with other tokens than the data, or a classifier with other classes."""
        if fault := agreement.of_weights(key, path, self._settings.data_dir):
            yield fault
        if self._loads_classifier(key) and (fault := agreement.of_classifier(key, path, self._settings.data_dir)):
            yield fault

    def _loads_classifier(self, key: str) -> bool:
        """Return whether weights of a key such as `pretrained_model` include outputs for the classes of the data."""
        values, prefix = self._run.values, key.removesuffix("pretrained_model")
        name = values.get(f"{prefix}model")
        if name is None or values.get("sampler") == "episode":  # whose outputs are not classes
            return False
        declared = {item.key for item in catalogue.entry("model", name).parameters}
        return "num_classes" in declared and bool(values.get(f"{prefix}load_cls_weights", True))

    def _about_callbacks(self) -> Iterator[Fault]:
        if self._settings.callbacks or self._settings.report_to != "none":
            from xdpx.trainer.hooks import listed

            yield from listed.faults_of(self._settings.callbacks, engine=self._settings.engine)
            yield from listed.faults_of_trackers(self._settings.report_to)

    def _about_engine(self) -> Iterator[Fault]:
        if self._settings.engine == SPMD:
            yield from spmd_faults(self._run)
            return
        for (prefix, kind), name in self._run.picks.items():
            needed = NEEDED.get(name, ()) if kind == "optimizer" else ()
            absent = next((module for module in needed if find_spec(module) is None), None)
            if absent:
                problem = f"is '{name}', which needs the package {absent}, not installed here."
                remedy = f"Install it: {PACKAGES[absent].install}; or use adamw_torch, which needs only torch."
                yield Fault(f"{prefix}{kind}", problem, remedy)

    def _about_processes(self) -> Iterator[Fault]:
        """Yield settings that do not work with several processes, if a launcher or the config sets their number."""
        try:
            count = adopt_launch(self._launch_keys)
        except ConfigError as error:
            yield from error.faults
            return
        if count > 1 and self._run.total > 1:
            problem = f"holds {self._run.total} runs, but {count} processes were started, which train one run together."
            yield Fault("__parent__", problem, "Start x-train itself, which starts the processes of each run (nproc).")
        yield from devices.faults_of(self._run, self._settings, count or devices.asked_for(self._settings))

    def _about_folder(self) -> Iterator[Fault]:
        settings = self._settings
        if wrong_name(settings.log_file):
            yield Fault("log_file", wrong_name(settings.log_file))
        if settings.auto_suffix or not is_master():  # another process may have begun to write there
            return
        found = run_folder.content(settings.save_dir)
        if settings.resume is True and found != "run":
            remedy = "Name the save_dir of the run, or use resume: auto to start one if there is none."
            yield Fault("save_dir", f"'{settings.save_dir}' contains no run to resume.", remedy)
        elif not settings.overwrite and (fault := resuming.data_fault(self._run, settings)):
            yield fault
        elif found == "something else" or (found == "run" and not (settings.resume or settings.overwrite)):
            yield run_folder.occupied(settings.save_dir, found)

    def _about_widths(self) -> Iterator[Fault]:
        width = self._run.values.get("hidden_size")
        if self._settings.precision == "fp16" and isinstance(width, int) and width % 8:
            yield Fault("hidden_size", f"is {width}.", "With fp16, use a multiple of 8: others are slow or fail.")
