"""Save checkpoints whole or not at all, find the newest one that can be trusted, and keep as few as is safe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from xdpx.checkpoints import layout
from xdpx.checkpoints.retention import Shelf, prune
from xdpx.logger import log
from xdpx.utils import commit, io

KEPT_STATES = 2
"""Full states that always stay: if the newest turns out to be damaged, there is one more to go back to."""


class NoCheckpoint(FileNotFoundError):
    """There is nothing to continue from; the message names what was tried and what is wrong with it."""


class Checkpointer:
    """The checkpoints of one folder.

    Nothing is deleted before what replaces it has been read back and compared with its hashes.

    Args:
        folder: any path.
        writes: whether this process is the one that writes and deletes; another one only looks.
    """

    def __init__(self, folder: str, *, writes: bool = True) -> None:
        self.folder = folder
        self._writes = writes

    def save_weights(self, step: int, weights: Mapping[str, Any], *, facts: Mapping[str, Any]) -> None:
        """Commit `checkpoint-<step>.pt`. Raises OSError when it cannot be written; what was there stays."""
        self._save(layout.weights_name(step), layout.weights_file(step), weights, {**facts, "step": step})

    def save_state(self, step: int, state: Mapping[str, Any], *, facts: Mapping[str, Any]) -> None:
        """Commit `checkpoint-<step>.pts`: everything that is needed to continue. Raises OSError as `save_weights`."""
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
            advice = "What was saved before is untouched. Make room, or choose another save_dir; then resume."
            raise OSError(error.errno, f"{problem}. {advice}") from error

    def weight_steps(self) -> list[int]:
        """Return the steps whose weights are there, oldest first. Numbers decide, never the time of a file."""
        return self._steps(layout.WEIGHTS)

    def state_steps(self) -> list[int]:
        """Return the steps whose full state is there, oldest first."""
        return self._steps(layout.STATE)

    def _steps(self, suffix: str) -> list[int]:
        if not io.isdir(self.folder):
            return []
        steps = (layout.step_of(io.name(path), suffix) for path in io.listdir(self.folder))
        return sorted(step for step in steps if step is not None)

    def newest_state(self) -> int | None:
        """Return the newest step that training can be continued from; None when there is none.

        What fails the comparison with its manifest is named in the log, and skipped.
        """
        for step in reversed(self.state_steps()):
            faults = self.state_problems(step)
            if not faults:
                return step
            log.warning(f"{layout.state_file(step)} is not used: {'; '.join(faults)}")
        return None

    def state_problems(self, step: int, *, hashes: bool = True) -> list[str]:
        """Return what is wrong with the full state of a step; nothing when it can be trusted."""
        return commit.problems(self.folder, layout.state_name(step), hashes=hashes)

    def weights_problems(self, step: int, *, hashes: bool = True) -> list[str]:
        """Return what is wrong with the weights of a step; nothing when they can be trusted."""
        return commit.problems(self.folder, layout.weights_name(step), hashes=hashes)

    def load_state(self, step: int) -> dict[str, Any]:
        """Load the full state of a step. Raises OSError when it cannot be read whole."""
        return self._load(layout.state_file(step))

    def load_weights(self, step: int) -> dict[str, Any]:
        """Load the weights of a step. Raises OSError when they cannot be read whole."""
        return self._load(layout.weights_file(step))

    def _load(self, file_name: str) -> dict[str, Any]:
        from xdpx.checkpoints.trusted import load_tensors

        loaded: dict[str, Any] = load_tensors(io.join(self.folder, file_name))
        return loaded

    def prune(self, *, weights: Collection[int] | None, states: Collection[int] | None) -> None:
        """Delete all checkpoints but those of the given steps; None keeps them all.

        The newest `KEPT_STATES` full states stay in any case. Nothing is deleted unless the newest that is to be kept
        agrees with its hashes.
        """
        if not self._writes:
            return
        if states is not None:
            self._prune(layout.state_name, layout.state_file, self.state_steps(), self._with_spare(states))
        if weights:
            self._prune(layout.weights_name, layout.weights_file, self.weight_steps(), weights)

    def _with_spare(self, keep: Collection[int]) -> set[int]:
        """Return the states that stay: those, and as many of the newest up to them that are whole as is safe."""
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
        if io.isfile(path):  # its manifest was damaged, so that nobody knew of it
            io.remove(path)
