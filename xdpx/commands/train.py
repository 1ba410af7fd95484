"""`x-train <config>`: train a model, from a config to checkpoints, logs and figures."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

from xdpx.config.faults import Fault, nearest
from xdpx.config.loading import Run
from xdpx.trainer import run_folder
from xdpx.trainer.parameters import TrainParameters
from xdpx.trainer.preemption import EXIT_CODE


class Train:
    """Train a model on what x-prepro made; continue, stage and compare runs."""

    class Parameters(TrainParameters):
        """The keys of `x-train`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._settings: TrainParameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Give what is wrong between the keys and what is on disk. Needs no torch."""
        return [*self._about_data(), *self._about_length(), *self._about_folder(), *self._about_widths()]

    def run(self) -> int:
        """Train. The exit code is 85 when a signal interrupted it and the same command can continue."""
        from xdpx.trainer.training import train

        return 0 if train(self._run).finished else EXIT_CODE

    def _about_data(self) -> Iterator[Fault]:
        settings = self._settings
        splits = settings.data_size
        if not splits:
            remedy = "Inherit what x-prepro wrote: __parent__: ${data_dir}/meta"
            yield Fault("data_size", f"nothing says which splits '{settings.data_dir}' holds.", remedy)
            return
        known = ", ".join(sorted(splits))
        if settings.valid_subset not in splits:
            near = nearest(settings.valid_subset, splits)
            remedy = f"Did you mean '{near}'?" if near else f"There are: {known}."
            yield Fault("valid_subset", f"there is no split '{settings.valid_subset}'.", remedy)
        for pattern in patterns(settings.train_subset):
            if not any(fnmatch(name, pattern) for name in splits):
                yield Fault("train_subset", f"no split matches '{pattern}'.", f"There are: {known}.")

    def _about_length(self) -> Iterator[Fault]:
        settings = self._settings
        sizes = train_sizes(settings)
        if not sizes:
            return
        smallest = min(sizes.values()) if settings.lazy_load else sum(sizes.values())
        group = settings.batch_size * settings.update_freq
        if group >= smallest:
            what = f"shard ({min(sizes, key=lambda name: sizes[name])})" if settings.lazy_load else "training set"
            problem = f"batch_size x update_freq is {group}, but the {what} has {smallest} samples."
            yield Fault("batch_size", problem, f"Use at most {smallest - 1} samples per update.")
            return
        total = total_updates(settings, sizes)
        if settings.tolerance is not None and settings.min_steps > total:
            yield Fault(
                "min_steps", f"is {settings.min_steps}, but training has {total} updates.", f"Use at most {total}."
            )

    def _about_folder(self) -> Iterator[Fault]:
        settings = self._settings
        if settings.auto_suffix:
            return
        found = run_folder.content(settings.save_dir)
        if settings.resume is True and found != "run":
            remedy = "Name the save_dir of the run, or use resume: auto to begin if there is none."
            yield Fault("save_dir", f"'{settings.save_dir}' holds no run to resume.", remedy)
        elif found == "something else" or (found == "run" and not (settings.resume or settings.overwrite)):
            yield run_folder.occupied(settings.save_dir, found)

    def _about_widths(self) -> Iterator[Fault]:
        width = self._run.values.get("hidden_size")
        if self._settings.fp16 and isinstance(width, int) and width % 8:
            yield Fault("hidden_size", f"is {width}.", "With fp16, use a multiple of 8: others are slow or fail.")


def patterns(train_subset: str | list[str]) -> list[str]:
    """Give the patterns of `train_subset`, however it was written."""
    return [train_subset] if isinstance(train_subset, str) else train_subset


def train_sizes(settings: TrainParameters) -> dict[str, int]:
    """Give the samples of each split that is trained on."""
    wanted = patterns(settings.train_subset)
    left_out = {settings.valid_subset} if settings.exclude_valid_from_train else set()
    return {
        name: size
        for name, size in settings.data_size.items()
        if name not in left_out and any(fnmatch(name, pattern) for pattern in wanted)
    }


def total_updates(settings: TrainParameters, sizes: dict[str, int]) -> int:
    """Give the updates of the whole schedule, as far as they can be told before shards that are still to come."""
    group = settings.batch_size * settings.update_freq
    per_epoch = min(sizes.values()) // group if settings.lazy_load else sum(sizes.values()) // group
    limits = [settings.max_update] if settings.max_update else []
    if settings.max_epoch:
        limits.append(per_epoch * settings.max_epoch)
    return min(limits)
