"""The files in a `checkpoint-<step>/` of the Trainer, in the original's format; the original's can be read, too.

No file in it is unpickled: weights are safetensors, everything else is tensors and plain values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from xdpx.checkpoints import foreign, parts
from xdpx.checkpoints.background import Background, copied
from xdpx.checkpoints.folders import (
    ALONE,
    FINITE,
    MANIFEST,
    DamagedCheckpoint,
    FolderCommit,
    Ranks,
    Staging,
    agree,
    attempt,
    check,
    damage,
    folder_name,
    missing_parts,
    step_of,
    tell_changes,
)
from xdpx.checkpoints.trusted import DamagedFile, bytes_of, load_tensors, save_tensors
from xdpx.logger import log
from xdpx.trainer.files import model_files, rng
from xdpx.trainer.files.model_files import ModelFiles
from xdpx.trainer.files.plain import OnlyPicklable, plain, plain_json
from xdpx.utils import io
from xdpx.utils.paths import StrPath

HIDDEN = "_token"
"""Values of arguments whose names end like this are never written to a file."""


@dataclass(frozen=True)
class Contents:
    """The content of a checkpoint besides the model; None for missing parts. Only `state` is not just for resuming.

    Attributes:
        state: the fields of `trainer_state.json`.
        arguments: of the run, by name.
        optimizer, scheduler, scaler: their `state_dict()`.
        trained: the weights in training, by name, if the model is written with averaged ones.
        progress: values for an exact resume that JSON can hold.
        finite: whether all weights are finite; recorded in the manifest.
    """

    state: Mapping[str, Any]
    arguments: Mapping[str, Any] | None = None
    optimizer: Mapping[str, Any] | None = None
    scheduler: Mapping[str, Any] | None = None
    scaler: Mapping[str, Any] | None = None
    trained: Mapping[str, Any] | None = None
    progress: Mapping[str, Any] | None = None
    finite: bool = True


@dataclass(frozen=True)
class OwnState:
    """The state of one process: its random generators, and the position of its data loader."""

    rng: Mapping[str, Any] | None = None
    loader: Mapping[str, Any] | None = None

    @classmethod
    def of_this_process(cls, ranks: Ranks = ALONE, loader: Mapping[str, Any] | None = None) -> OwnState:
        """Return the current state of this process's generators."""
        return cls(rng.capture(all_devices=ranks.size > 1), loader)


# ---- write


def save_checkpoint(  # noqa: PLR0913 - the parts of a checkpoint, and who writes them
    parent: StrPath,
    step: int,
    contents: Contents,
    model: ModelFiles | Callable[[str], object],
    *,
    own: OwnState | None = None,
    ranks: Ranks = ALONE,
    everywhere: bool = False,
    background: Background | None = None,
    then: Callable[[str], object] = lambda path: None,
) -> str:
    """Save `checkpoint-<step>/` atomically; call it on all processes.

    Args:
        parent: the folder of the run.
        step: updates done.
        contents: everything but the model. Without an optimizer state the checkpoint cannot be resumed.
        model: the files of the model, or a function that writes it into the folder it is given.
        own: state of this process; None if the checkpoint is not for resuming.
        ranks: the processes that save together.
        everywhere: each machine has its own disk and gets all files.
        background: writes while training continues, from copies that are taken before this function returns; errors are
            raised by its next call. A function as `model` is called before this returns; only on the writing process
            does its folder become part of the checkpoint.
        then: called with the path once it is complete, on each process that wrote all files (e.g. to delete old ones).

    Returns:
        The path of the folder.

    Raises:
        OSError: it could not be written; earlier checkpoints are unchanged.
    """
    save = _Save(io.plain(parent), step, _resumable(contents), model, everywhere, then)
    if background is None:
        save.write_together(own, ranks)
    else:
        save.later(background, own, ranks)
    return io.join(save.parent, folder_name(step))


@dataclass(frozen=True)
class _Save:
    parent: str
    step: int
    contents: Contents
    model: ModelFiles | Callable[[str], object]
    everywhere: bool
    then: Callable[[str], object]

    def write_together(self, own: OwnState | None, ranks: Ranks) -> None:
        """Write in the foreground; each process its own files."""
        whole = self._commit(ranks, ranks.size)
        with _explained(whole.target), whole as staging:
            if not isinstance(self.model, ModelFiles):
                self.model(staging.path)
            elif staging.writes:
                self.model.write(staging.path)
            if own is not None:
                write_own(staging, own, ranks.rank, ranks.size)
            if staging.writes:
                write_contents(staging, self.contents)
        if staging.writes:
            self.then(whole.target)

    def later(self, background: Background, own: OwnState | None, ranks: Ranks) -> None:
        """Write in a background thread. It must not call collectives, so all states are gathered here."""
        owns = ranks.gather(own) or [own]
        writes = ranks.rank == 0 or (self.everywhere and ranks.local_rank == 0)
        whole, path = self._commit(ALONE, ranks.size), ""
        with ExitStack() as stack:
            failure = attempt(background.wait)
            if writes and failure is None:
                failure = attempt(lambda: stack.enter_context(whole))
                path = "" if failure else whole.staged
            failure = self._write_now(path, ranks) or failure
            agree(ranks, failure, whole.target)
            if writes:
                with background.copying():
                    rest = self._rest(path, owns, whole.target, stack.pop_all())
                background.start(rest)

    def _write_now(self, path: str, ranks: Ranks) -> Exception | None:
        """Call the function that writes the model, on all processes, since it may gather weights from them."""
        first = ranks.broadcast(path)
        write, place = self.model, path or first
        if isinstance(write, ModelFiles) or not place:
            return None
        return attempt(lambda: write(place))

    def _rest(self, path: str, owns: Sequence[OwnState | None], target: str, stack: ExitStack) -> Callable[[], None]:
        """Return the work of the thread, with copies of everything that training changes."""
        model = self.model.frozen() if isinstance(self.model, ModelFiles) else None
        states = {
            name: copied(getattr(self.contents, name)) for name in ("optimizer", "scheduler", "scaler", "trained")
        }
        contents = replace(self.contents, **states)

        def work() -> None:
            with _explained(target), stack:
                staging = Staging(path, writes=True, ranks=ALONE)
                if model is not None:
                    model.write(path)
                for rank, own in enumerate(owns):
                    if own is not None:
                        write_own(staging, own, rank, len(owns))
                write_contents(staging, contents)
            self.then(target)

        return work

    def _commit(self, ranks: Ranks, size: int) -> FolderCommit:
        facts = {"step": self.step, "processes": size, FINITE: self.contents.finite}
        return FolderCommit(
            self.parent,
            folder_name(self.step),
            facts=facts,
            ranks=ranks,
            everywhere=self.everywhere,
            needs_bytes=bytes_of(self.contents.optimizer),
        )


@contextmanager
def _explained(target: str) -> Generator[None]:
    """Add to an error of the disk what failed, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        problem = f"{target} could not be saved ({error.strerror or error})"
        advice = "Earlier files are untouched. Free some space, or choose another output_dir; then resume."
        raise OSError(error.errno, f"{problem}. {advice}") from error


def _resumable(contents: Contents) -> Contents:
    """Convert the states to plain values; if that is impossible, leave them out and log a warning."""
    states: dict[str, Any] = {}
    for name in ("optimizer", "scheduler", "scaler"):
        try:
            states[name] = plain(getattr(contents, name), name)
        except OnlyPicklable as error:
            advice = "Give it a state_dict of tensors and plain values, or use save_only_model"
            log.warning(f"Checkpoints of this run cannot be resumed: {error}. {advice}.", once=True)
            return replace(contents, optimizer=None, scheduler=None, scaler=None)
    return replace(contents, **states)


def write_contents(staging: Staging, contents: Contents) -> None:
    """Write the files shared by all processes; the trainer state comes last, as readers of partial folders expect."""
    for name, values in (
        (parts.OPTIMIZER, contents.optimizer),
        (parts.SCHEDULER, contents.scheduler),
        (parts.SCALER, contents.scaler),
        (parts.TRAINED, contents.trained),
    ):
        if values is not None:
            _write_tensors(staging, name, values)
    if contents.arguments is not None:
        write_arguments(staging.path, contents.arguments)
    if contents.progress is not None:
        _write_json(staging.path, parts.PROGRESS, contents.progress)
    _write_json(staging.path, parts.STATE, contents.state)


def write_own(staging: Staging, own: OwnState, rank: int, size: int) -> None:
    """Write the files of one process."""
    if own.rng is not None:
        _write_tensors(staging, parts.random_file(rank, size), own.rng)
    if own.loader is not None:
        _write_tensors(staging, parts.loader_file(rank, size), plain(own.loader, "the state of the data loader"))


def write_arguments(folder: str, arguments: Mapping[str, Any]) -> None:
    """Write `training_args.bin` (a dict for `torch.load`, not an object) and the same as JSON, without tokens."""
    secrets = {name for name, value in arguments.items() if name.endswith(HIDDEN) and value is not None}
    written = plain_json({name: f"<{name.upper()}>" if name in secrets else value for name, value in arguments.items()})
    with io.open(io.join(folder, parts.ARGUMENTS), "wb") as file:
        save_tensors(written, file)
    _write_json(folder, parts.ARGUMENTS_TEXT, written)


def _write_tensors(staging: Staging, name: str, values: Mapping[str, Any]) -> None:
    with staging.open(name) as file:
        save_tensors(values, file)


def _write_json(folder: str, name: str, values: Mapping[str, Any]) -> None:
    with io.open(io.join(folder, name), "w") as file:
        file.write(json.dumps(values, indent=2, sort_keys=True, default=plain_json) + "\n")


# ---- read


class TrainerCheckpoint:
    """The parts of one checkpoint folder, ours or the original's. Each is read on access; None if it is missing.

    Args:
        path: the folder, local or remote.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = io.plain(path)

    @classmethod
    def checked(cls, path: StrPath, *, ranks: Ranks = ALONE, changed: bool = False) -> TrainerCheckpoint:
        """Return a checkpoint after one process has compared its files with their hashes, on behalf of all.

        Args:
            path: the folder.
            ranks: the processes that open it together.
            changed: also accept one that was changed on purpose, see `folders.damage`.

        Raises:
            DamagedCheckpoint: it is missing, damaged, changed, or contains no weights.
        """
        told = ranks.broadcast(_refusal(path, changed=changed) if ranks.rank == 0 else None)
        if told:
            raise DamagedCheckpoint(f"Can't find a valid checkpoint at {path}: {told}")
        return cls(path)

    @property
    def step(self) -> int | None:
        """The number of updates, from the state, or else from the folder's name."""
        state = self.state()
        return int(state["global_step"]) if state else step_of(io.name(self.path))

    def missing(self) -> list[str]:
        """Return the names of the files that it lacks for resuming; empty if it is complete."""
        return missing_parts(self.path)

    def state(self) -> dict[str, Any] | None:
        """Return the fields of `trainer_state.json`."""
        return self._json(parts.STATE)

    def progress(self) -> dict[str, Any] | None:
        """Return the values that we store in addition to the original's files."""
        return self._json(parts.PROGRESS)

    def arguments(self) -> dict[str, Any] | None:
        """Return the arguments of the run that saved it; None for the original's, which are a pickle."""
        return self._json(parts.ARGUMENTS_TEXT)

    def weights(self) -> dict[str, Any]:
        """Return the weights by name, on the host. Raises FileNotFoundError if there are none."""
        return model_files.read_weights(self.path)

    def optimizer(self) -> dict[str, Any] | None:
        """Return the `state_dict` of the optimizer."""
        return self._tensors(parts.OPTIMIZER) or self._tensors(parts.FULL_FSDP_OPTIMIZER)

    def scheduler(self) -> dict[str, Any] | None:
        """Return the `state_dict` of the learning rate schedule."""
        return self._tensors(parts.SCHEDULER)

    def scaler(self) -> dict[str, Any] | None:
        """Return the `state_dict` of the gradient scaler."""
        return self._tensors(parts.SCALER)

    def trained(self) -> dict[str, Any] | None:
        """Return the weights in training, by name; None if they are those of the model."""
        return self._tensors(parts.TRAINED)

    def rng(self, rank: int = 0, size: int = 1) -> dict[str, Any] | None:
        """Return the random generators of one process, for `rng.restore`; None if another number of them saved it."""
        return self._tensors(parts.random_file(rank, size), arrays=True)

    def loader(self, rank: int = 0, size: int = 1) -> dict[str, Any] | None:
        """Return the state of the data loader of one process."""
        return self._tensors(parts.loader_file(rank, size))

    def _tensors(self, name: str, *, arrays: bool = False) -> dict[str, Any] | None:
        path = io.join(self.path, name)
        if not io.isfile(path):
            return None
        loaded: dict[str, Any] = load_tensors(path, arrays=arrays)
        return loaded

    def _json(self, name: str) -> dict[str, Any] | None:
        path = io.join(self.path, name)
        if not io.isfile(path):
            return None
        try:
            loaded: dict[str, Any] = foreign.read_json(path)
        except ValueError as error:
            raise DamagedFile(f"{path}: is not JSON ({error}). Use another checkpoint, or copy it again.") from error
        return loaded


def _refusal(path: StrPath, *, changed: bool) -> str:
    """Return why a checkpoint cannot be used and what to do, "" if it can; log the changes of a changed one."""
    faults = check(path)
    if not faults:
        return ""
    if not io.exists(io.join(path, parts.STATE)):
        return f"{' '.join(faults)} {ANOTHER}"
    damaged = damage(path)
    if not damaged:
        on_purpose = "If it was changed on purpose, set resume_changed='weights' to continue with it as it is."
        if not changed:
            return f"{' '.join(faults)} {ANOTHER} {on_purpose}"
        tell_changes(io.plain(path), faults)
        return ""
    edited = " If it was changed on purpose, remove its checkpoint.manifest.json."
    return f"{' '.join(damaged)} {ANOTHER}{edited if io.exists(io.join(path, MANIFEST)) else ''}"


ANOTHER = "Use another checkpoint, or True for the newest intact one."


def changed_arguments(
    saved: Mapping[str, Any] | None, now: Mapping[str, Any], *, ignore: Sequence[str] = ()
) -> list[str]:
    """Return `name: was …, is …` for each argument that differs from those of the run that saved a checkpoint."""
    before, after = saved or {}, plain_json(now)
    names = [name for name in after if name in before and name not in ignore and not name.endswith(HIDDEN)]
    return [f"{name}: was {before[name]}, is {after[name]}" for name in names if before[name] != after[name]]
