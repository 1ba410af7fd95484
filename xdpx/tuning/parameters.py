"""Every key of `x-tune` that belongs to no tuner and no schedule."""

from __future__ import annotations

from typing import Literal

from xdpx.config import parameters as declare
from xdpx.config.parameters import param

GROUP = "tune"
KEPT_FROM_TRIALS = frozenset({"max_update", "max_epoch"})
"""Keys that no space may hold: the length of a whole run is what trials are compared by."""

EQUAL_IN_FOLDS = ("major_metric", "ascending_metric", "batch_size", "update_freq")
"""Keys that all folds share: a mean needs scores of one metric, after equal samples."""


class TuneParameters(declare.Parameters):
    """Keys of x-tune: the configs of the search, its limits, and where trials are trained."""

    space_config: str = param(
        doc="Config of the search space; ./ and ../ are relative to this file, the suffix may be left out.", group=GROUP
    )
    base_config: str = param(
        doc="Config of x-train that every trial starts from; ./ and ../ are relative to this file.", group=GROUP
    )
    save_dir: str = param(
        doc="Folder for the search: its trials, tables and figures.", path="new_directory", unique=True, group=GROUP
    )
    resume: bool | Literal["auto"] = param(
        "auto",
        doc="Continue the search in save_dir; auto: start, or continue if this very search was started before; false: "
        "save_dir must be free.",
        group=GROUP,
    )
    max_trials: int = param(gt=0, doc="Maximum number of trials.", group=GROUP)
    seed: int = param(1, ge=0, doc="Seed of the tuner.", group=GROUP)
    tuner: str = param("random", doc="Algorithm that proposes the values of trials.", registry="tuner", group=GROUP)
    schedule: str = param(
        "bracket", doc="Which trials continue, and which are stopped.", registry="schedule", group=GROUP
    )
    parallel_runs: int = param(
        gt=0, doc="Trials in a bracket, and maximum number of concurrent trials, on any machine.", group=GROUP
    )
    ref_runs: list[str] = param(
        [], doc="Folders of finished runs to show in the figure.", path="directory", group=GROUP
    )
    save_above_score: float | None = param(
        None, doc="At the end, only keep weights of trials with a better score than this.", group=GROUP
    )
    folds: bool = param(
        False, doc="The base config is a loop: a trial trains all of its runs, and the mean of their scores counts.",
        group="tune/objective",
    )  # fmt: skip
    seeds: list[int] | None = param(
        None, ge=0, doc="Train each trial once with each of these seeds; the mean of their scores counts.",
        group="tune/objective",
    )  # fmt: skip
    executor: Literal["local", "ray"] = param(
        "local", doc="Where trials are trained: processes of this machine, or a Ray cluster.", group="tune/executor"
    )
    available_rss: float | None = param(
        None, gt=0, doc="Gigabytes of memory for all trials together; null: what is free.", group="tune/executor"
    )
    min_rss: float = param(
        1.0, gt=0, doc="Gigabytes of memory of one trial: available_rss / min_rss run at the same time.",
        group="tune/executor",
    )  # fmt: skip
    log_file: str | None = param("log.txt", doc="Name of the log file in save_dir; null for none.", group=GROUP)

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts between keys."""
        found = []
        if self.seeds is not None and len(set(self.seeds)) < len(self.seeds):
            found.append(("seeds", "lists a seed twice, which would be the same run twice."))
        if self.seeds == []:
            found.append(("seeds", "is empty. List at least one seed, or leave it out."))
        if self.available_rss is not None and self.available_rss < self.min_rss:
            problem = f"is {self.available_rss}, less than min_rss {self.min_rss}: there is no room for a single trial."
            found.append(("available_rss", problem))
        return found
