"""Put the weights of a sharded checkpoint of the Trainer together, so that `from_pretrained` can load them.

Usage: x-script gather_shards CHECKPOINT FOLDER

  CHECKPOINT   a `checkpoint-<step>` that was saved with SHARDED_STATE_DICT, by any number of processes
  FOLDER       where `model.safetensors` goes, and the configuration and tokenizer that lie in the checkpoint

The weights are put together in memory: there must be room for all of them. To go on with a training, resume from the
checkpoint itself: that needs no gathering.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.utils import io

NAME = "gather_shards"
USAGE = "x-script gather_shards CHECKPOINT FOLDER"
OWN = ("training_args.bin", "checkpoint.manifest.json", "progress.json", "trainer_state.json", "training_args.json")
"""Files that belong to the run, not to the model."""


def main(argv: Sequence[str]) -> int:
    """Write the whole weights, and print where."""
    arguments = read_arguments(NAME, argv)
    need_paths(NAME, arguments, USAGE, exactly=2)
    checkpoint, folder = arguments.paths
    from xdpx.engines.pytorch.strategies import shard_files
    from xdpx.trainer.files.model_files import write_weights

    weights = shard_files.read_whole(io.plain(checkpoint))
    io.makedirs(folder)
    write_weights(io.plain(folder), weights)
    for name in io.listdir(checkpoint):
        if name.endswith((".json", ".txt", ".model", ".jinja")) and name not in OWN:
            io.copy(io.join(checkpoint, name), io.join(folder, name))
    print(f"{len(weights)} weights of {checkpoint} are whole in {folder}")
    return 0
