"""Names of the files in a `checkpoint-<step>/`: those of the Hugging Face Trainer, and some of XDPX."""

from __future__ import annotations

import re

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
OLD_WEIGHTS = "pytorch_model.bin"
OLD_WEIGHTS_INDEX = "pytorch_model.bin.index.json"
ADAPTER = "adapter_model.safetensors"
OLD_ADAPTER = "adapter_model.bin"
CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
ADAPTER_CONFIG = "adapter_config.json"

OPTIMIZER = "optimizer.pt"
SCHEDULER = "scheduler.pt"
SCALER = "scaler.pt"
STATE = "trainer_state.json"
ARGUMENTS = "training_args.bin"
ARGUMENTS_TEXT = "training_args.json"
PROGRESS = "progress.json"
"""XDPX only: state that an exact resume needs beyond the Trainer's files, such as the position in samples."""

TRAINED = "trained_weights.pt"
"""XDPX only: the weights being trained, if the model file has averaged weights."""

SHARDED_WEIGHTS = "pytorch_model_fsdp_0"
SHARDED_OPTIMIZER = "optimizer_0"
FULL_FSDP_WEIGHTS = "pytorch_model_fsdp.bin"
FULL_FSDP_OPTIMIZER = "optimizer.bin"
DEEPSPEED_POINTER = "latest"

INCOMPLETE = "checkpoint-is-incomplete.txt"
"""Written by the Trainer into a checkpoint that it begins at a SIGTERM, and removed when that is complete."""

ANY_WEIGHTS = (
    WEIGHTS, WEIGHTS_INDEX, OLD_WEIGHTS, OLD_WEIGHTS_INDEX, ADAPTER, OLD_ADAPTER,
    SHARDED_WEIGHTS, FULL_FSDP_WEIGHTS, DEEPSPEED_POINTER,
)  # fmt: skip
ANY_OPTIMIZER = (OPTIMIZER, SHARDED_OPTIMIZER, FULL_FSDP_OPTIMIZER, DEEPSPEED_POINTER)


_WEIGHTS_FILE = re.compile(r"(.*/)?(model|adapter_model|pytorch_model)[\w.-]*\.(safetensors|bin|index\.json)")


def holds_weights(name: str) -> bool:
    """Return whether a file holds weights or their index, by its path relative to the checkpoint."""
    return bool(_WEIGHTS_FILE.fullmatch(name)) or name.startswith(f"{SHARDED_WEIGHTS}/")


_BY_ANY_TRAINER = frozenset({
    OPTIMIZER, SCHEDULER, SCALER, STATE, ARGUMENTS, ARGUMENTS_TEXT, PROGRESS, TRAINED, SHARDED_OPTIMIZER,
    FULL_FSDP_WEIGHTS, FULL_FSDP_OPTIMIZER, DEEPSPEED_POINTER, INCOMPLETE,
})  # fmt: skip
_OF_A_PROCESS = re.compile(r"(rng_state|loader_state)\w*\.(pth|pt)|global_step\d+/.*")


def is_part(name: str) -> bool:
    """Return whether a Trainer writes this file, by its path relative to the checkpoint; descriptions do not count."""
    first = name.partition("/")[0]
    return holds_weights(name) or first in _BY_ANY_TRAINER or bool(_OF_A_PROCESS.fullmatch(name))


def random_file(rank: int, size: int) -> str:
    """Return the name of the file with the states of the random generators of one process."""
    return f"rng_state_{rank}.pth" if size > 1 else "rng_state.pth"


def loader_file(rank: int, size: int) -> str:
    """Return the name of the file with the position of the data loader of one process. XDPX only."""
    return f"loader_state_{rank}.pt" if size > 1 else "loader_state.pt"
