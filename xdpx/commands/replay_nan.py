"""Take the update again that made NaN or infinity, from the file that a training left in its folder `nonfinite`.

Usage: x-script replay_nan SAVE_DIR/nonfinite/update-N.pt

The run is built anew from its save_dir; weights, batch and random numbers are those of the file. What is found is
printed as it was then, so that a change of the code or of the data can be tried on the one batch that showed it.
A file that another door left (Trainer, x-exp) is shown, batch by batch, for only its own script can build its model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.faults import ConfigError, Fault
from xdpx.training.hunting import FOLDER, FORMAT, report
from xdpx.utils import io

NAME = "replay_nan"
USAGE = "x-script replay_nan SAVE_DIR/nonfinite/update-N.pt"


def main(argv: Sequence[str]) -> int:
    """Take the update again; exit with 0 where it is finite now, and with 1 where it is not."""
    arguments = read_arguments(NAME, argv)
    need_paths(NAME, arguments, USAGE, exactly=1)
    path = arguments.paths[0]
    saved = _read(path)
    folder = io.parent(io.parent(io.abspath(path)))
    from xdpx.config.args_file import ARGS_FILE

    if not io.isfile(io.join(folder, ARGS_FILE)):
        _show(saved)
        print(f"{folder} is no run of x-train: build the model as its script does, and take these batches.")
        return 0
    return _replay(saved, folder)


def _read(path: str) -> Mapping[str, Any]:
    from xdpx.checkpoints.trusted import load_tensors

    if not io.isfile(path):
        remedy = f"Name a file update-N.pt in the folder {FOLDER} of a run."
        raise ConfigError(f"x-script {NAME}", [Fault("arguments", f"there is no file '{path}'.", remedy)])
    saved: Mapping[str, Any] = load_tensors(path)
    if not isinstance(saved, Mapping) or saved.get("format") != FORMAT:
        problem = f"'{path}' holds no batch that a training left."
        raise ConfigError(f"x-script {NAME}", [Fault("arguments", problem, f"Usage: {USAGE}")])
    return saved


def _show(saved: Mapping[str, Any]) -> None:
    """Print what the batches are made of."""
    import torch

    print(f"update {saved['number']}, {len(saved['group'])} micro-batches")

    def show(name: str, value: object) -> None:
        if isinstance(value, Mapping):
            for key, each in value.items():
                show(f"{name}.{key}", each)
        elif isinstance(value, torch.Tensor):
            print(f"  {name}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}")

    for index, batch in enumerate(saved["group"]):
        show(f"micro-batch {index}", batch)


def _replay(saved: Mapping[str, Any], folder: str) -> int:
    """Build the run of a folder, and take the update again."""
    from xdpx.config.loading import load
    from xdpx.config.user_modules import load_user_modules
    from xdpx.runs.assembly import build_parts
    from xdpx.runs.resuming import progress_of
    from xdpx.runs.run_folder import STARTER_CONFIG

    if saved["state"] is None:
        remedy = "Take the newest checkpoint before it as pretrained_model, and train on with log_interval 1."
        fault = Fault("arguments", "the state was too large to be kept beside the batch.", remedy)
        raise ConfigError(f"x-script {NAME}", [fault])
    load_user_modules()
    run = load(io.join(folder, STARTER_CONFIG), "x-train", paths=False)[0]
    settings = run.parameters("command")
    if settings.seed is None:
        print("seed is null, so dropout draws other numbers than it did")
    size = settings.batch_size * settings.update_freq
    parts = build_parts(run, settings, progress=progress_of({}, group_size=size), saved={})
    engine, number = parts.engine, saved["number"]
    group = [_arrays(batch) for batch in saved["group"]]
    origin = engine.origin(engine.restore(saved["state"]), group, number)
    for line in report(number, origin, group):
        print(line)
    return 0 if origin is None else 1


def _arrays(tree: Any) -> Any:
    """Return nested values with numpy arrays, as processors give them."""
    import torch

    if isinstance(tree, Mapping):
        return {name: _arrays(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_arrays(value) for value in tree]
    return tree.numpy() if isinstance(tree, torch.Tensor) else tree
