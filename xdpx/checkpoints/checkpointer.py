"""Save checkpoints of `x-train` atomically, find the newest undamaged one, and delete old ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from xdpx.checkpoints import layout
from xdpx.checkpoints.retention import Shelf, prune
from xdpx.logger import log
from xdpx.utils import commit, io

KEPT_STATES = 2
"""Number of full states that are always kept: one more than needed, in case the newest is damaged."""


class NoCheckpoint(FileNotFoundError):
    """There is no checkpoint to resume from; the message names those that were tried, and why they failed."""


class Checkpointer:
    """The checkpoints of one folder.

    A checkpoint is deleted only after the one that replaces it has been read back and verified.

    Args:
        folder: local or remote.
        writes: whether this process writes and deletes; otherwise it only reads.
    """

    def __init__(self, folder: str, *, writes: bool = True) -> None:
        self.folder = folder
        self._writes = writes

    def save_weights(self, step: int, weights: Mapping[str, Any], *, facts: Mapping[str, Any]) -> None:
        """Commit `checkpoint-<step>.pt`. Raises OSError if writing fails; existing files are unchanged then."""
        self._save(layout.weights_name(step), layout.weights_file(step), weights, {**facts, "step": step})

    def save_state(self, step: int, state: Mapping[str, Any], *, facts: Mapping[str, Any]) -> None:
        """Commit `checkpoint-<step>.pts`, the full state to resume from. Raises OSError like `save_weights`."""
        self._save(layout.state_name(step), layout.state_file(step), state, {**facts, "step": step})

    def _save(self, name: str, file_name: str, values: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        from xdpx.checkpoints.trusted import bytes_of, save_tensors

        if not self._writes:
            return
        try:
            whole = commit.Commit(self.folder, name, facts=facts, needs_bytes=bytes_of(values))
            with whole as opened, opened.open(file_name) as target:
                save_tensors(values, target)
        except OSError as error:
            problem = f"{io.join(self.folder, file_name)} could not be saved ({error.strerror or error})"
            advice = "Earlier checkpoints are untouched. Free some space, or choose another save_dir; then resume."
            raise OSError(error.errno, f"{problem}. {advice}") from error

    def weight_steps(self) -> list[int]:
        """Return the steps of the weights in the folder, ascending; modification times are ignored."""
        return self._steps(layout.WEIGHTS)

    def state_steps(self) -> list[int]:
        """Return the steps of the full states in the folder, ascending."""
        return self._steps(layout.STATE)

    def _steps(self, suffix: str) -> list[int]:
        if not io.isdir(self.folder):
            return []
        steps = (layout.step_of(io.name(path), suffix) for path in io.listdir(self.folder))
        return sorted(step for step in steps if step is not None)

    def newest_state(self) -> int | None:
        """Return the newest step that training can be resumed from; None if there is none.

        States that do not match their manifest are skipped, with a warning.
        """
        for step in reversed(self.state_steps()):
            faults = self.state_problems(step)
            if not faults:
                return step
            log.warning(f"{layout.state_file(step)} is not used: {'; '.join(faults)}")
        return None

    def state_problems(self, step: int, *, hashes: bool = True) -> list[str]:
        """Return the problems of the full state of a step: none if it matches its manifest."""
        return commit.problems(self.folder, layout.state_name(step), hashes=hashes)

    def weights_problems(self, step: int, *, hashes: bool = True) -> list[str]:
        """Return the problems of the weights of a step: none if they match their manifest."""
        return commit.problems(self.folder, layout.weights_name(step), hashes=hashes)

    def load_state(self, step: int) -> dict[str, Any]:
        """Load the full state of a step. Raises OSError if it is missing or damaged."""
        return self._load(layout.state_file(step))

    def load_weights(self, step: int) -> dict[str, Any]:
        """Load the weights of a step. Raises OSError if they are missing or damaged."""
        return self._load(layout.weights_file(step))

    def _load(self, file_name: str) -> dict[str, Any]:
        from xdpx.checkpoints.trusted import load_tensors

        loaded: dict[str, Any] = load_tensors(io.join(self.folder, file_name))
        return loaded

    def prune(self, *, weights: Collection[int] | None, states: Collection[int] | None) -> None:
        """Delete all checkpoints but those of the given steps.

        Nothing is deleted unless the newest one to keep matches its hashes.

        Args:
            weights: steps whose weights are kept; None, or no step, keeps all.
            states: steps whose full states are kept, in addition to the newest `KEPT_STATES` up to the highest of
                them; None, or no step, keeps all.
        """
        if not self._writes:
            return
        if states:
            self._prune(layout.state_name, layout.state_file, self.state_steps(), self._with_spare(states))
        if weights:
            self._prune(layout.weights_name, layout.weights_file, self.weight_steps(), weights)

    def _with_spare(self, keep: Collection[int]) -> set[int]:
        """Return the steps to keep: `keep`, and the newest `KEPT_STATES` complete states up to the highest of them."""
        whole = [
            step for step in self.state_steps() if step <= max(keep) and not self.state_problems(step, hashes=False)
        ]
        return {*whole[-KEPT_STATES:], *keep}

    def _prune(
        self, name: Callable[[int], str], file_name: Callable[[int], str], steps: list[int], keep: Collection[int]
    ) -> None:
        shelf = Shelf(
            steps, lambda step: io.join(self.folder, file_name(step)),
            lambda step: commit.problems(self.folder, name(step), hashes=True),
            lambda step: self._discard(name(step), file_name(step)),
        )  # fmt: skip
        prune(shelf, lambda order: keep, newest=max(keep))

    def _discard(self, name: str, file_name: str) -> None:
        commit.discard(self.folder, name)
        path = io.join(self.folder, file_name)
        if io.isfile(path):  # not listed by a manifest, as that was damaged
            io.remove(path)
