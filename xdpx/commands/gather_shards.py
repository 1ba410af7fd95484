"""Merge the output of many processes: the data of a sharded x-prepro, or a sharded checkpoint of the Trainer.

Usage: x-script gather_shards CONFIG|DATA_DIR [key=value ...]
       x-script gather_shards CHECKPOINT FOLDER

  CONFIG, DATA_DIR   a config of x-prepro that was run with num_shards, or its data_dir
  CHECKPOINT         a `checkpoint-<step>` that was saved with SHARDED_STATE_DICT, by any number of processes
  FOLDER             gets `model.safetensors`, and the configuration and tokenizer files of the checkpoint

The last task of a sharded x-prepro does this by itself; run it if that task was interrupted. It can be repeated.
Weights are merged in memory, which must hold all of them. Resuming a training needs no merging: resume from the
checkpoint itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.config.loading import Run

NAME = "gather_shards"
USAGE = "x-script gather_shards CONFIG|DATA_DIR, or x-script gather_shards CHECKPOINT FOLDER"
OWN = ("training_args.bin", "checkpoint.manifest.json", "progress.json", "trainer_state.json", "training_args.json")
"""Files that belong to the run, not to the model."""


def main(argv: Sequence[str]) -> int:
    """Merge the data or the weights, and print where they are."""
    overrides = [word for word in argv if "=" in word and not word.startswith("-")]
    arguments = read_arguments(NAME, [word for word in argv if word not in overrides])
    if len(arguments.paths) == 1:
        return _gather_data(arguments.paths[0], overrides)
    need_paths(NAME, arguments, USAGE, exactly=2)
    return _gather_weights(*arguments.paths)


def _gather_weights(checkpoint: str, folder: str) -> int:
    from xdpx.engines.pytorch.strategies import shard_files
    from xdpx.trainer.files.model_files import write_weights

    weights = shard_files.read_whole(io.plain(checkpoint))
    io.makedirs(folder)
    write_weights(io.plain(folder), weights)
    for name in io.listdir(checkpoint):
        if name.endswith((".json", ".txt", ".model", ".jinja")) and name not in OWN:
            io.copy(io.join(checkpoint, name), io.join(folder, name))
    print(f"{len(weights)} weights of {checkpoint} are gathered in {folder}")
    return 0


def _gather_data(path: str, overrides: Sequence[str]) -> int:
    from xdpx.config.user_modules import load_user_modules
    from xdpx.datasets.data_files import splits
    from xdpx.datasets.sharded.folder import ShardFolder, planned_count
    from xdpx.datasets.sharded.gathering import gather
    from xdpx.datasets.sharded.parameters import without_shards

    load_user_modules()  # loaders and tokenizers may be users' own
    for run in map(without_shards, _runs(path, overrides)):
        known = run.parameters("command")
        folder = ShardFolder(run, planned_count(known.data_dir))
        folder.enter(splits(known.data_source, known.data_files))
        sizes = gather(folder)
        print(f"{known.data_dir} is complete: {', '.join(f'{split} {size:,}' for split, size in sizes.items())}")
    return 0


def _runs(path: str, overrides: Sequence[str]) -> list[Run]:
    """Return the runs of a config, or the run stored by the tasks of a sharded data_dir."""
    from xdpx.config.loading import load, resolve
    from xdpx.datasets.sharded.folder import SUFFIX, place_of, stored_config

    data_dir = io.plain(path).rstrip("/").removesuffix(SUFFIX)
    if not io.isdir(place_of(data_dir)):
        if io.isdir(path):
            problem = f"'{path}' is not the data_dir of a sharded x-prepro: there is no {place_of(data_dir)}."
            raise ConfigError(f"x-script {NAME}", [Fault("arguments", problem, f"Usage: {USAGE}")])
        return load(path, "x-prepro", overrides)
    stored = stored_config(place_of(data_dir))
    run = resolve(stored["values"], "x-prepro", source=stored["source"])
    return [replace(run, index=stored["index"], total=stored["total"])]
