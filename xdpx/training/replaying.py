"""Instead of training, run one non-finite update that another training saved (`training.hunting`); in every door.

The door builds its model as always; weights, batch and random state come from the file. So a change of the code can be
tried on the very batch that showed the fault.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.engines.base import Updater
from xdpx.training.hunting import FORMAT, report
from xdpx.training.loop import Session
from xdpx.utils import io

VARIABLE = "XDPX_REPLAY_NAN"
"""Environment variable with the path of the file; if set, training only repeats that update."""


class Replayed(SystemExit):
    """Ends the program after a replayed update; the exit code is 1 if the update is still not finite.

    Args:
        lines: of the report.
        is_finite: whether everything is finite now.
    """

    def __init__(self, lines: Sequence[str], *, is_finite: bool) -> None:
        super().__init__(0 if is_finite else 1)
        self.lines = list(lines)


def replay_if_asked(session: Session) -> None:
    """Replay the update named by the environment variable, if it is set, and end the program with the findings.

    Raises:
        Replayed: always, if the variable is set.
        ConfigError: the file contains no update, or the state was too large to be saved with it.
    """
    path = os.environ.get(VARIABLE)
    if path:
        saved = read(path)
        need_state(saved, path)
        raise repeat_update(session.engine, session.state, saved)


def repeat_update(engine: Updater, state: Any, saved: Mapping[str, Any]) -> Replayed:
    """Run the update of a file again; return the findings, to be raised or printed."""
    number = saved["number"]
    origin = engine.again(state, saved, number)
    if origin is None:
        finite = f"update {number} was taken again, and all of it is finite now"
        why = "what made it is fixed, or is not in the file, such as a fault of the machine or of one rank alone."
        return Replayed([f"{finite}: {why}"], is_finite=True)
    return Replayed(report(number, origin, saved["group"]), is_finite=False)


def read(path: str) -> dict[str, Any]:
    """Return a saved update, with its batches as NumPy arrays.

    Raises:
        ConfigError: there is no such file, or it is not a saved update.
    """
    from xdpx.checkpoints.trusted import load_tensors

    if not io.isfile(path):
        remedy = "Name a file update-N.pt in the folder nonfinite of a run."
        raise ConfigError("replay", [Fault("arguments", f"there is no file '{path}'.", remedy)])
    saved = load_tensors(path)
    if not isinstance(saved, Mapping) or saved.get("format") != FORMAT:
        problem = f"'{path}' contains no batch of a training."
        raise ConfigError("replay", [Fault("arguments", problem, "Name a file in the folder nonfinite of a run.")])
    return {**saved, "group": [_arrays(batch) for batch in saved["group"]]}


def need_state(saved: Mapping[str, Any], path: str) -> None:
    """Raise ConfigError if the state was too large to be saved beside the batch."""
    if saved["state"] is None:
        remedy = "Take the newest checkpoint before it as pretrained_model, and train on with log_interval 1."
        raise ConfigError(path, [Fault("state", "was too large to be kept with the batch.", remedy)])


def _arrays(tree: Any) -> Any:
    """Return nested values with numpy arrays, as processors give them."""
    import torch

    if isinstance(tree, Mapping):
        return {name: _arrays(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_arrays(value) for value in tree]
    return tree.numpy() if isinstance(tree, torch.Tensor) else tree
