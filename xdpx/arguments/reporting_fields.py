"""Arguments that decide what is told, scored and kept: logs, trackers, evaluation, checkpoints, the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xdpx.arguments.declaring import LEVELS, option
from xdpx.arguments.enums import HubStrategy, IntervalStrategy, SaveStrategy


@dataclass
class ReportingFields:
    """When to log, evaluate and save, and where all that goes."""

    # ---- logs
    logging_strategy: IntervalStrategy | str = option("steps", "When to log: no, steps or epoch.")
    logging_steps: float = option(500, "Updates between two logs; below 1: their share of all updates.")
    logging_first_step: bool = option(False, "Log the first update too.")
    log_on_each_node: bool = option(True, "Let one process per node log, not only that of the first node.")
    logging_nan_inf_filter: bool = option(
        True, "Accepted for older scripts; a loss that is not finite is logged as it is, and counted."
    )
    include_num_input_tokens_seen: str | bool = option(
        "no", "Count input tokens: all, non_padding or no; true means all."
    )
    log_level: str = option("passive", "Level of the logs on the main process.", choices=LEVELS)
    log_level_replica: str = option("warning", "Level of the logs on the other processes.", choices=LEVELS)
    disable_tqdm: bool | None = option(None, "Show no bars; unset: none when only errors are logged.")

    # ---- trackers
    report_to: None | str | list[str] = option("none", "Trackers to report to, 'all' that are installed, or 'none'.")
    run_name: str | None = option(None, "What the trackers call this run.")
    project: str = option("huggingface", "Project of Trackio.")
    trackio_space_id: str | None = option(None, "Space in which Trackio shows the run live.")
    trackio_bucket_id: str | None = option(None, "Bucket in which Trackio keeps its data.")
    trackio_static_space_id: str | None | Literal[False] = option(
        None, "Read-only Space of Trackio for the finished run; false for none."
    )

    # ---- evaluation
    eval_strategy: IntervalStrategy | str = option("no", "When to evaluate: no, steps or epoch.")
    eval_steps: float | None = option(
        None, "Updates between two evaluations; below 1: their share of all updates; unset: as logging_steps."
    )
    eval_delay: float = option(0, "Updates or epochs, by eval_strategy, before the first evaluation.")
    per_device_eval_batch_size: int = option(8, "Samples per device in one batch of an evaluation.")
    prediction_loss_only: bool = option(False, "Keep only the loss of an evaluation.")
    eval_on_start: bool = option(False, "Evaluate once before the first update, to see that it works.")
    eval_do_concat_batches: bool = option(True, "Join the predictions of all batches; false gives a list of batches.")
    eval_use_gather_object: bool = option(False, "Gather predictions that are not tensors, by pickling them.")
    eval_accumulation_steps: int | None = option(
        None, "Batches after which predictions go to host memory; here they always go at once."
    )
    include_for_metrics: list[str] = option(list, "What compute_metrics gets besides: inputs, loss.")
    batch_eval_metrics: bool = option(False, "Call compute_metrics on each batch, and once more for the result.")

    # ---- checkpoints
    save_only_model: bool = option(False, "Save the weights alone: small, but training cannot be resumed.")
    save_strategy: SaveStrategy | str = option("steps", "When to save: no, steps, epoch or best.")
    save_steps: float = option(500, "Updates between two checkpoints; below 1: their share of all updates.")
    save_on_each_node: bool = option(False, "Save on each node; not for nodes that share a disk.")
    save_total_limit: int | None = option(None, "Most checkpoints to keep; the newest and the best always stay.")
    enable_jit_checkpoint: bool = option(False, "Save and stop when the machine asks the process to end (SIGTERM).")

    # ---- Hub
    push_to_hub: bool = option(False, "Upload the model at each save and at the end.")
    hub_token: str | None = option(None, "Token for the Hub; unset: the one of `hf auth login`.", repr=False)
    hub_private_repo: bool | None = option(None, "Whether a repository that is made is private.")
    hub_model_id: str | None = option(None, "Repository on the Hub; unset: named after output_dir.")
    hub_strategy: HubStrategy | str = option("every_save", "What to upload, and when.")
    hub_always_push: bool = option(False, "Upload even while the last upload is under way.")
    hub_revision: str | None = option(None, "Branch to upload to.")

    # ---- best model
    load_best_model_at_end: bool = option(False, "Go back to the best checkpoint when training ends.")
    metric_for_best_model: str | None = option(None, "Score that decides what is best; unset: the loss.")
    greater_is_better: bool | None = option(None, "Whether higher is better; unset: unless it ends in loss.")

    # ---- resuming
    ignore_data_skip: bool = option(False, "Begin with the first batch of data when resuming.")
    restore_callback_states_from_checkpoint: bool = option(False, "Take the state of callbacks from the checkpoint.")
