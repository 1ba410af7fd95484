"""Repeat the update that produced NaN or infinity, from the file that a training wrote into its folder `nonfinite`.

Usage: x-script replay_nan DIR/nonfinite/update-N.pt [SCRIPT.py arguments...]

The model is built again: that of x-train from its save_dir, that of x-exp from the words that the job was started with
(or those given after the file), and that of a Trainer by its script, named after the file. Weights, batch and random
numbers are those of the file. The same findings are printed as in the training, so that a change of code or data can
be tested on the batch that failed. Nothing is trained, and the folder is not changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.faults import ConfigError, Fault
from xdpx.training.replaying import VARIABLE, Replayed, need_state, read, repeat_update
from xdpx.utils import io

NAME = "replay_nan"
USAGE = "x-script replay_nan DIR/nonfinite/update-N.pt [SCRIPT.py arguments...]"
RUN_FACTS = "run.json"


def main(argv: Sequence[str]) -> int:
    """Repeat the update. Exit code 0 if it is finite now, 1 if it is not."""
    arguments = read_arguments(NAME, argv[:1])
    need_paths(NAME, arguments, USAGE, exactly=1)
    path, words = io.abspath(arguments.paths[0]), list(argv[1:])
    saved = read(path)
    folder = io.parent(io.parent(path))
    from xdpx.config.args_file import ARGS_FILE

    if words and words[0].endswith(".py"):
        need_state(saved, path)
        return _in_place_of_training(path, lambda: _run_script(words))
    if io.isfile(io.join(folder, RUN_FACTS)):
        need_state(saved, path)
        return _in_place_of_training(path, lambda: _run_experiment(words or _words_of(folder)))
    if io.isfile(io.join(folder, ARGS_FILE)):
        _refuse(words, f"but the args.py of {folder} builds the model: nothing may follow the file.")
        need_state(saved, path)
        return _replay(saved, folder)
    _refuse(words, f"but {folder} is a Trainer's: its script, a .py file, must follow the file.")
    _show(saved)
    command = " ".join(saved.get("command", [])) or "SCRIPT.py arguments..."
    print(f"{folder} is a Trainer's: its script builds the model. Type: x-script replay_nan {path} {command}")
    return 0


def _refuse(words: Sequence[str], problem: str) -> None:
    if words:
        raise ConfigError(f"x-script {NAME}", [Fault(" ".join(words), f"is given, {problem}", f"Usage: {USAGE}")])


def _in_place_of_training(path: str, work: Callable[[], object]) -> int:
    """Start a training, which repeats the update of the file instead and ends. Return the exit code."""
    os.environ[VARIABLE] = path
    try:
        work()
    except Replayed as ending:
        return _told(ending)
    finally:
        del os.environ[VARIABLE]
    print("it ended without training, so no update was replayed: is it the script that made the file?")
    return 1


def _told(found: Replayed) -> int:
    for line in found.lines:
        print(line)
    return int(found.code or 0)


def _run_script(words: list[str]) -> None:
    """Run a file as `python path words` would, in this process."""
    import runpy
    import sys

    before, sys.argv = sys.argv, words
    sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = before
        sys.path.pop(0)


def _words_of(folder: str) -> list[str]:
    """Return the words with which the job of a folder was started."""
    with io.open(io.join(folder, RUN_FACTS), encoding="utf-8") as file:
        command = [str(word) for word in json.load(file)["command"]]
    return command[command.index("x-exp") + 1 :] if "x-exp" in command else command[1:]


def _run_experiment(words: list[str]) -> None:
    """Run the experiment of the words in a temporary folder, since a finished job would not train."""
    import tempfile

    from xdpx.commands.experiment import main as experiment

    own = [word for word in words if not word.startswith("--job_log_dir=") and word not in {"--json", "--quiet"}]
    with tempfile.TemporaryDirectory(prefix="xdpx-replay-") as folder:
        experiment([*own, f"--job_log_dir={io.join(folder, 'job')}"])


def _show(saved: Mapping[str, Any]) -> None:
    """Print names, types and shapes of the arrays in the batches."""
    import numpy as np

    print(f"update {saved['number']}, {len(saved['group'])} micro-batches")

    def show(name: str, value: object) -> None:
        if isinstance(value, Mapping):
            for key, each in value.items():
                show(f"{name}.{key}", each)
        elif isinstance(value, np.ndarray):
            print(f"  {name}: {value.dtype}{list(value.shape)}")

    for index, batch in enumerate(saved["group"]):
        show(f"micro-batch {index}", batch)


def _replay(saved: Mapping[str, Any], folder: str) -> int:
    """Build the run of a folder, and repeat the update."""
    from xdpx.config.loading import load
    from xdpx.config.user_modules import load_user_modules
    from xdpx.runs.assembly import build_parts
    from xdpx.runs.resuming import progress_of
    from xdpx.runs.run_folder import STARTER_CONFIG

    load_user_modules()
    run = load(io.join(folder, STARTER_CONFIG), "x-train", paths=False)[0]
    settings = run.parameters("command")
    if settings.seed is None:
        print("seed is null, so its dropout masks differ from those of the run")
    size = settings.batch_size * settings.update_freq
    parts = build_parts(run, settings, progress=progress_of({}, group_size=size), saved={})
    return _told(repeat_update(parts.engine, None, saved))
