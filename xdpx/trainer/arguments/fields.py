"""All fields of the arguments, in the order of the original, and the function that declares a field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from xdpx.trainer.arguments.enums import (
    DebugOption,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    SaveStrategy,
    SchedulerType,
)


def option(default: object, text: str, **details: Any) -> Any:
    """Declare one field.

    Args:
        default: a plain value, or a class such as `list` whose instance is the default.
        text: what the field decides; shown by `--help`.
        details: further settings for argparse: `choices`, `nargs`, `const`, `aliases`; and `repr`.
    """
    shown = details.pop("repr", True)
    metadata = {"help": text, **details}
    if isinstance(default, type):
        make: Callable[[], Any] = default
        return field(default_factory=make, metadata=metadata, repr=shown)
    return field(default=default, metadata=metadata, repr=shown)


LEVELS = ("detail", "debug", "info", "warning", "error", "critical", "passive")
"""Values of `log_level`; `passive` does not change the level of the program."""

BARE_FLAG = {"nargs": "?", "const": True}
"""For a field that is not only true or false: as an option without a value it means true."""


@dataclass
class LearningFields:
    """What to learn, for how long, and with which arithmetic."""

    # ---- where to, how long
    output_dir: str | None = option(None, "Folder for checkpoints and results; default: trainer_output.")
    per_device_train_batch_size: int = option(8, "Samples per device in one training batch.")
    num_train_epochs: float = option(3.0, "Passes over the training data; a fraction trains a share of the last one.")
    max_steps: int = option(
        -1, "Updates to train for, instead of num_train_epochs; required if the data set has no length."
    )

    # ---- learning rate
    learning_rate: float = option(5e-5, "Peak learning rate.")
    lr_scheduler_type: SchedulerType | str = option("linear", "Learning rate schedule.")
    lr_scheduler_kwargs: dict[str, Any] | str | None = option(None, "More arguments of the schedule, as JSON.")
    warmup_steps: float = option(0, "Updates of linear warm-up; below 1: their share of all updates.")

    # ---- optimizer
    optim: OptimizerNames | str = option("adamw_torch_fused", "Optimizer.")
    optim_args: str | None = option(None, "More arguments of the optimizer: 'name=value,name=value'.")
    weight_decay: float = option(0.0, "Decoupled weight decay; biases and norms are exempt.")
    adam_beta1: float = option(0.9, "Decay of Adam's first moment.")
    adam_beta2: float = option(0.999, "Decay of Adam's second moment.")
    adam_epsilon: float = option(1e-8, "Epsilon in the denominator of Adam.")
    optim_target_modules: None | str | list[str] = option(None, "Modules that GaLore and APOLLO work on.")

    # ---- gradient and loss
    gradient_accumulation_steps: int = option(1, "Batches whose gradients are accumulated for one update.")
    average_tokens_across_devices: bool = option(
        True, "Divide the loss by the target tokens of all devices together, so that it is their true mean."
    )
    max_grad_norm: float = option(1.0, "Clip the norm of the gradient to this; 0 does not clip.")
    label_smoothing_factor: float = option(0.0, "Share of probability that label smoothing spreads over all classes.")

    # ---- precision
    bf16: bool = option(False, "Compute in bfloat16 where that is safe; weights stay in float32.")
    fp16: bool = option(False, "Compute in float16 where that is safe, with a loss scale; weights stay in float32.")
    bf16_full_eval: bool = option(False, "Evaluate with all weights in bfloat16.")
    fp16_full_eval: bool = option(False, "Evaluate with all weights in float16.")
    tf32: bool | None = option(None, "Whether float32 products may use TF32; unset leaves it to PyTorch.")

    # ---- memory for time
    activation_checkpointing: bool | None = option(
        None, "Recompute activations in the backward pass: less memory, about a fifth slower.",
        **BARE_FLAG,
    )  # fmt: skip
    activation_checkpointing_kwargs: dict[str, Any] | str | None = option(
        None, "every_n_layers, offload, and what torch.utils.checkpoint takes, as JSON."
    )
    gradient_checkpointing: bool | None = option(None, "Earlier name of activation_checkpointing.", **BARE_FLAG)
    gradient_checkpointing_kwargs: dict[str, Any] | str | None = option(
        None, "Earlier name of activation_checkpointing_kwargs."
    )

    # ---- compilation
    torch_compile: bool = option(False, "Compile the model with torch.compile.")
    torch_compile_backend: str | None = option(None, "Backend of torch.compile; turns it on.")
    torch_compile_mode: str | None = option(None, "Mode of torch.compile; turns it on.")
    use_liger_kernel: bool = option(False, "Patch the model with Liger kernels.")
    liger_kernel_config: dict[str, bool] | None = option(None, "Which Liger kernels to use, as JSON.")

    # ---- more
    use_cache: bool = option(False, "Let the model cache keys and values of earlier tokens; few methods need it.")
    neftune_noise_alpha: float | None = option(None, "Strength of NEFTune noise on the embeddings; 5 to 15 is usual.")
    torch_empty_cache_steps: int | None = option(None, "Updates between releases of the device's cached memory.")
    auto_find_batch_size: bool = option(False, "Start again with a smaller training batch if memory runs out.")


@dataclass
class ReportingFields:
    """When to log, evaluate and save, and where results go."""

    # ---- logs
    logging_strategy: IntervalStrategy | str = option("steps", "When to log: no, steps or epoch.")
    logging_steps: float = option(500, "Updates between two logs; below 1: their share of all updates.")
    logging_first_step: bool = option(False, "Log the first update too.")
    log_on_each_node: bool = option(True, "Let one process per node log, not only that of the first node.")
    logging_nan_inf_filter: bool = option(
        True,
        "If given, log the mean of the others in place of a NaN or infinite loss, which is logged beside it as "
        "loss_unfiltered; if not given, such a loss is logged unchanged. Both count it as nonfinite_steps.",
    )
    include_num_input_tokens_seen: str | bool = option(
        "no", "Count input tokens: all, non_padding or no; true means all."
    )
    log_level: str = option("passive", "Level of the logs on the main process.", choices=LEVELS)
    log_level_replica: str = option("warning", "Level of the logs on the other processes.", choices=LEVELS)
    disable_tqdm: bool | None = option(None, "Hide progress bars; unset: hidden when only errors are logged.")

    # ---- trackers
    report_to: None | str | list[str] = option("none", "Trackers to report to, 'all' that are installed, or 'none'.")
    run_name: str | None = option(None, "Name of this run in the trackers.")
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
        None, "Batches after which predictions move to host memory; here always at once."
    )
    include_for_metrics: list[str] = option(list, "Further inputs of compute_metrics: inputs, loss.")
    batch_eval_metrics: bool = option(False, "Call compute_metrics on each batch, and once more for the result.")

    # ---- checkpoints
    save_only_model: bool = option(False, "Save the weights alone: small, but training cannot be resumed.")
    save_strategy: SaveStrategy | str = option("steps", "When to save: no, steps, epoch or best.")
    save_steps: float = option(500, "Updates between two checkpoints; below 1: their share of all updates.")
    save_on_each_node: bool = option(False, "Save on each node; not for nodes that share a disk.")
    save_total_limit: int | None = option(None, "Maximum number of checkpoints; the newest and the best always stay.")
    enable_jit_checkpoint: bool = option(False, "Save and stop on SIGTERM.")

    # ---- Hub
    push_to_hub: bool = option(False, "Upload the model at each save and at the end.")
    hub_token: str | None = option(None, "Token for the Hub; unset: the one of `hf auth login`.", repr=False)
    hub_private_repo: bool | None = option(None, "Whether a new repository is private.")
    hub_model_id: str | None = option(None, "Repository on the Hub; unset: named after output_dir.")
    hub_strategy: HubStrategy | str = option("every_save", "What to upload, and when.")
    hub_always_push: bool = option(False, "Upload even while the previous upload is running.")
    hub_revision: str | None = option(None, "Branch to upload to.")

    # ---- best model
    load_best_model_at_end: bool = option(False, "Go back to the best checkpoint when training ends.")
    metric_for_best_model: str | None = option(None, "Score that decides what is best; unset: the loss.")
    greater_is_better: bool | None = option(None, "Whether higher is better; unset: unless it ends in loss.")

    # ---- resuming
    ignore_data_skip: bool = option(False, "Start from the first batch of data when resuming.")
    restore_callback_states_from_checkpoint: bool = option(False, "Restore the state of callbacks from the checkpoint.")


@dataclass
class MachineFields:
    """Seeds, devices, data loaders, and settings for several processes."""

    # ---- seeds
    full_determinism: bool = option(False, "Use deterministic algorithms only; slower.")
    seed: int = option(42, "Seed of all randomness.")
    data_seed: int | None = option(None, "Seed of the order of the data; unset: seed.")
    use_cpu: bool = option(False, "Use the CPU even if there is an accelerator.")

    # ---- accelerate
    accelerator_config: dict[str, Any] | str | None = option(None, "How batches reach the processes: JSON or a file.")
    parallelism_config: Any = option(
        None, "Sizes of tensor, context and sequence parallelism, an object of accelerate."
    )

    # ---- data loaders
    dataloader_drop_last: bool = option(False, "Drop an incomplete last batch.")
    dataloader_num_workers: int = option(0, "Processes that load data; 0 loads in this one.")
    dataloader_pin_memory: bool = option(True, "Put batches into page-locked memory, for faster copies to a GPU.")
    dataloader_persistent_workers: bool = option(False, "Keep the loading processes from one epoch to the next.")
    dataloader_prefetch_factor: int | None = option(None, "Batches that each loading process prepares ahead.")
    dataloader_multiprocessing_context: str | None = option(
        None, "How loading processes are started.", choices=("fork", "spawn", "forkserver")
    )
    dataloader_in_order: bool = option(True, "Take batches in order; false: as soon as they are ready.")
    remove_unused_columns: bool = option(True, "Leave out columns that the model does not take.")
    label_names: list[str] | None = option(None, "Inputs that are labels.")
    train_sampling_strategy: str = option(
        "random",
        "Order of the training samples.",
        choices=("random", "sequential", "group_by_length", "batch_rebalance"),
    )
    length_column_name: str = option("length", "Column with the lengths of samples, for sampling by length.")

    # ---- several processes
    ddp_find_unused_parameters: bool | None = option(None, "Whether DDP searches for weights without a gradient.")
    ddp_bucket_cap_mb: int | None = option(None, "MiB of gradients per bucket of DDP.")
    ddp_broadcast_buffers: bool | None = option(None, "Whether DDP copies buffers from the first process.")
    ddp_static_graph: bool | None = option(None, "Promise DDP that each step computes the same graph.")
    ddp_backend: str | None = option(
        None,
        "Communication backend of the processes.",
        choices=("nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl"),
    )
    ddp_timeout: int = option(1800, "Seconds that processes wait for each other.")
    fsdp: str | None = option(
        None, "Shard model and optimizer over the processes (FSDP2); also 'full_shard offload auto_wrap'.",
        **BARE_FLAG,
    )  # fmt: skip
    fsdp_config: dict[str, Any] | str | None = option(None, "How to shard: JSON or a file.")
    deepspeed: dict[str, Any] | str | None = option(None, "Config of DeepSpeed: JSON or a file.")

    # ---- debugging
    debug: str | list[DebugOption] = option("", "What to watch for: underflow_overflow.")
    skip_memory_metrics: bool = option(True, "Leave memory usage out of the metrics.")

    # ---- for the user's script
    do_train: bool = option(False, "Whether the script should train.")
    do_eval: bool = option(False, "Whether the script should evaluate.")
    do_predict: bool = option(False, "Whether the script should predict.")
    resume_from_checkpoint: str | None = option(None, "Checkpoint that the script should resume from.")
    local_rank: int = option(-1, "Index of this process on its node, as torch.distributed.launch passes it.")


SAVED_OR_GIVEN = ("saved", "given")
REFUSED_OR_TAKEN = ("refuse", "weights")
NONFINITE = ("keep", "skip", "raise")


@dataclass
class OwnFields:
    """Options that the original does not have."""

    resume_hyperparameters: str = option(
        "saved",
        "Source of the learning rate, weight decay and other settings of optimizer and schedule when resuming: the "
        "checkpoint (saved), or the arguments (given).",
        choices=SAVED_OR_GIVEN,
    )
    resume_changed: str = option(
        "refuse",
        "What to do with a checkpoint whose weights changed after saving, or with missing files: refuse lists them and "
        "stops (or takes the previous checkpoint), weights continues with the rest.",
        choices=REFUSED_OR_TAKEN,
    )
    nonfinite_steps: str = option(
        "keep",
        "What to do with an update whose loss or gradient is NaN or infinite: keep applies and counts it, skip leaves "
        "it out, raise ends the training before it. The last two wait for the device at every update.",
        choices=NONFINITE,
    )
    ema_decay: float = option(
        1.0,
        "Decay per update of an exponential moving average of the weights, which is evaluated and saved in place of "
        "them; 1 keeps none. Checkpoints hold both, so that resuming continues both.",
    )
    swa_start: float | None = option(
        None,
        "The update (below 1: the share of all) from which on weights are averaged evenly, evaluated and saved; None: "
        "never.",
    )
    swa_interval: int = option(1, "Updates from one averaged point of swa_start to the next.")
    memory_copy_interval: int = option(
        0,
        "Steps between copies of the state in each machine's shared memory; a restart with "
        "resume_from_checkpoint=True continues from one if no newer checkpoint was saved; 0 keeps none.",
    )
    hang_seconds: float = option(
        30.0,
        "Seconds after which several processes are ended because one of them is frozen, or because an update takes "
        "that much longer than twice the longest one; stacks of all go into output_dir/stacks. 0 turns this off.",
    )
    inspect_gradient: bool = option(
        False,
        "Inspect every weight's gradient with each log: output_dir/plots/gradients has pictures and history, and the "
        "log names gradients that vanish, explode or are zero.",
    )
    profile: bool = option(
        False,
        "Trace five updates, after the first five, into output_dir/profile: a trace, a table, pictures of time and "
        "memory.",
    )


@dataclass(repr=False)
class Fields(OwnFields, MachineFields, ReportingFields, LearningFields):
    """All arguments of a training run. Dataclass fields are collected from the last base to the first."""
