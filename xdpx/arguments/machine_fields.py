"""Arguments that decide where and how training runs: seeds, devices, data loaders, several processes, script flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xdpx.arguments.declaring import BARE_FLAG, option
from xdpx.arguments.enums import DebugOption


@dataclass
class MachineFields:
    """Seeds, devices, data loaders, and what several processes need."""

    # ---- seeds
    full_determinism: bool = option(False, "Use deterministic algorithms only; slower.")
    seed: int = option(42, "Seed of all randomness.")
    data_seed: int | None = option(None, "Seed of the order of the data; unset: seed.")
    use_cpu: bool = option(False, "Stay on the CPU, whatever is there.")

    # ---- accelerate
    accelerator_config: dict[str, Any] | str | None = option(None, "How batches reach the processes: JSON or a file.")
    parallelism_config: Any = option(
        None, "Sizes of tensor, context and sequence parallelism, an object of accelerate."
    )

    # ---- data loaders
    dataloader_drop_last: bool = option(False, "Leave out a last batch that is not full.")
    dataloader_num_workers: int = option(0, "Processes that load data; 0 loads in this one.")
    dataloader_pin_memory: bool = option(True, "Put batches into page-locked memory, for faster copies to a GPU.")
    dataloader_persistent_workers: bool = option(False, "Keep the loading processes from one epoch to the next.")
    dataloader_prefetch_factor: int | None = option(None, "Batches that each loading process has ready.")
    dataloader_multiprocessing_context: str | None = option(
        None, "How loading processes are started.", choices=("fork", "spawn", "forkserver")
    )
    dataloader_in_order: bool = option(True, "Take batches in order; false: as they come.")
    remove_unused_columns: bool = option(True, "Leave out columns that the model does not take.")
    label_names: list[str] | None = option(None, "Inputs that are labels.")
    train_sampling_strategy: str = option(
        "random",
        "Order of the training samples.",
        choices=("random", "sequential", "group_by_length", "batch_rebalance"),
    )
    length_column_name: str = option("length", "Column with the lengths of samples, for sampling by length.")

    # ---- several processes
    ddp_find_unused_parameters: bool | None = option(None, "Whether DDP looks for weights that got no gradient.")
    ddp_bucket_cap_mb: int | None = option(None, "MiB of gradients that DDP sends at once.")
    ddp_broadcast_buffers: bool | None = option(None, "Whether DDP copies buffers from the first process.")
    ddp_static_graph: bool | None = option(None, "Tell DDP that each step computes the same graph.")
    ddp_backend: str | None = option(
        None,
        "How processes talk to each other.",
        choices=("nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl"),
    )
    ddp_timeout: int = option(1800, "Seconds that processes wait for each other.")
    fsdp: str | None = option(
        None, "Shard model and optimizer over the processes (FSDP2); also 'full_shard offload auto_wrap' and its like.",
        **BARE_FLAG,
    )  # fmt: skip
    fsdp_config: dict[str, Any] | str | None = option(None, "How to shard: JSON or a file.")
    deepspeed: dict[str, Any] | str | None = option(None, "Config of DeepSpeed: JSON or a file.")

    # ---- to look into things
    debug: str | list[DebugOption] = option("", "What to watch for: underflow_overflow.")
    skip_memory_metrics: bool = option(True, "Leave the use of memory out of the metrics.")

    # ---- for the user's script
    do_train: bool = option(False, "Whether the script should train.")
    do_eval: bool = option(False, "Whether the script should evaluate.")
    do_predict: bool = option(False, "Whether the script should predict.")
    resume_from_checkpoint: str | None = option(None, "Checkpoint that the script should resume from.")
    local_rank: int = option(-1, "Number of this process on its node, as torch.distributed.launch passes it.")
