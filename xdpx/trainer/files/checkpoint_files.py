"""What is in a `checkpoint-<step>/` of the Trainer: written so that the original reads it, and the original's read.

No file in it can run code: weights are safetensors, everything else is tensors and plain values.
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
from xdpx.checkpoints.trusted import bytes_of, load_tensors, save_tensors
from xdpx.logger import log
from xdpx.trainer.files import model_files, rng
from xdpx.trainer.files.model_files import ModelFiles
from xdpx.trainer.files.plain import NotPlain, plain, plain_json
from xdpx.utils import io
from xdpx.utils.paths import StrPath

HIDDEN = "_token"
"""Values of arguments whose names end like this never reach a file."""


@dataclass(frozen=True)
class Contents:
    """What a checkpoint holds beside the model; None for what there is not. All but `state` only to continue.

    Attributes:
        state: the fields of `trainer_state.json`.
        arguments: of the run, by name.
        optimizer, scheduler, scaler: their `state_dict()`.
        trained: the weights that go on to be trained, by name, where the model is written with averaged ones.
        progress: what JSON can hold, for an exact resume.
        finite: whether all weights are; the manifest says it.
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
    """What each process has for itself: its random generators, and where its data loader stands."""

    rng: Mapping[str, Any] | None = None
    loader: Mapping[str, Any] | None = None

    @classmethod
    def of_this_process(cls, ranks: Ranks = ALONE, loader: Mapping[str, Any] | None = None) -> OwnState:
        """Take the state of the generators now."""
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
    """Save `checkpoint-<step>/`, whole or not at all; call it on all processes.

    Args:
        parent: the folder of the run.
        step: updates done.
        contents: what is not the model. Without an optimizer state, nothing can be continued from the checkpoint.
        model: what is to be written of the model, or a function that does it into the folder it is given.
        own: of this process; None when nothing is to be continued.
        ranks: who saves together.
        everywhere: each machine has its own disk and wants all files.
        background: writes while training goes on, from copies that are taken before this returns; errors surface at
            its next call. A function as `model` is called before this returns; it may write into a folder of all
            processes on the one that writes only.
        then: called with the path once it counts, on each process that wrote all files (e.g. to delete old ones).

    Returns:
        The path of the folder.

    Raises:
        OSError: it could not be written; what was there stays.
    """
    save = _Save(io.plain(parent), step, _resumable(contents), model, everywhere, then)
    if background is None:
        save.together(own, ranks)
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

    def together(self, own: OwnState | None, ranks: Ranks) -> None:
        """Write now; each process its own files."""
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
        """Let a thread write. It must not speak with other processes, so what is theirs is gathered before."""
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
        """Call the function that writes the model, on all processes: what it gathers from them must be complete."""
        first = ranks.broadcast(path)
        write, place = self.model, path or first
        if isinstance(write, ModelFiles) or not place:
            return None
        return attempt(lambda: write(place))

    def _rest(self, path: str, owns: Sequence[OwnState | None], target: str, stack: ExitStack) -> Callable[[], None]:
        """Return what the thread does, with copies of everything that training changes."""
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
    """Say of an error of the disk what failed, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        problem = f"{target} could not be saved ({error.strerror or error})"
        advice = "What was saved before is untouched. Make room, or choose another output_dir; then resume."
        raise OSError(error.errno, f"{problem}. {advice}") from error


def _resumable(contents: Contents) -> Contents:
    """Bring the states to what can be read back; leave them out, with a word, when they cannot be."""
    states: dict[str, Any] = {}
    for name in ("optimizer", "scheduler", "scaler"):
        try:
            states[name] = plain(getattr(contents, name), name)
        except NotPlain as error:
            advice = "Give it a state_dict of tensors and plain values, or use save_only_model"
            log.warning(f"Checkpoints of this run cannot be continued from: {error}. {advice}.", once=True)
            return replace(contents, optimizer=None, scheduler=None, scaler=None)
    return replace(contents, **states)


def write_contents(staging: Staging, contents: Contents) -> None:
    """Write what all processes share; the state comes last, as a reader of unfinished folders would expect."""
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
    """Write `training_args.bin` (a dict for `torch.load`, not an object) and the same as JSON; no tokens."""
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


class DamagedCheckpoint(ValueError):
    """A checkpoint that was asked for cannot be used; the message names each fault."""


class TrainerCheckpoint:
    """The parts of one checkpoint folder, ours or the original's. Each is read when asked for; None when not there.

    Args:
        path: the folder, any path.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = io.plain(path)

    @classmethod
    def checked(cls, path: StrPath, *, ranks: Ranks = ALONE, changed: bool = False) -> TrainerCheckpoint:
        """Open a folder after its files were compared with their hashes, by one process for all.

        Args:
            path: the folder.
            ranks: who opens it together.
            changed: open also one that was changed on purpose, see `folders.damage`.

        Raises:
            DamagedCheckpoint: it is not there, damaged, changed, or holds no weights.
        """
        told = ranks.broadcast(_refusal(path, changed=changed) if ranks.rank == 0 else None)
        if told:
            raise DamagedCheckpoint(f"Can't find a valid checkpoint at {path}: {told}")
        return cls(path)

    @property
    def step(self) -> int | None:
        """The updates that were done, from the state, or else from the name."""
        state = self.state()
        return int(state["global_step"]) if state else step_of(io.name(self.path))

    def missing(self) -> list[str]:
        """Say what it lacks to be continued from; nothing when it has it all."""
        return missing_parts(self.path)

    def state(self) -> dict[str, Any] | None:
        """Return the fields of `trainer_state.json`."""
        return self._json(parts.STATE)

    def progress(self) -> dict[str, Any] | None:
        """Return what the run stored beyond the original's files."""
        return self._json(parts.PROGRESS)

    def arguments(self) -> dict[str, Any] | None:
        """Return the arguments of the run that saved it; None for the original's, which are a pickle."""
        return self._json(parts.ARGUMENTS_TEXT)

    def weights(self) -> dict[str, Any]:
        """Return the weights by name, on the host. Raises FileNotFoundError when there are none."""
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
        """Return the weights that go on to be trained, by name; None where they are those of the model."""
        return self._tensors(parts.TRAINED)

    def rng(self, rank: int = 0, size: int = 1) -> dict[str, Any] | None:
        """Return the random generators of one process, for `rng.restore`; None when so many did not save it."""
        return self._tensors(parts.random_file(rank, size), arrays=True)

    def loader(self, rank: int = 0, size: int = 1) -> dict[str, Any] | None:
        """Return what the data loader of one process said about its position."""
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
        loaded: dict[str, Any] = foreign.read_json(path)
        return loaded


def _refusal(path: StrPath, *, changed: bool) -> str:
    """Return why a checkpoint cannot be used and what to do, "" where it can; say what was changed in one that is."""
    faults = check(path)
    if not faults:
        return ""
    if not io.exists(io.join(path, parts.STATE)):
        return f"{' '.join(faults)} {ANOTHER}"
    damaged = damage(path)
    if not damaged:
        on_purpose = "Was it changed on purpose? Then set resume_changed='weights' to go on with it as it is."
        if not changed:
            return f"{' '.join(faults)} {ANOTHER} {on_purpose}"
        tell_changes(io.plain(path), faults)
        return ""
    edited = "Was it changed on purpose? Then remove its checkpoint.manifest.json."
    return f"{' '.join(damaged)} {ANOTHER} {edited}"


ANOTHER = "Use another checkpoint, or True for the newest that is whole."


def changed_arguments(
    saved: Mapping[str, Any] | None, now: Mapping[str, Any], *, ignore: Sequence[str] = ()
) -> list[str]:
    """Return `name: was …, is …` for each argument that differs from those of the run that saved a checkpoint."""
    before, after = saved or {}, plain_json(now)
    names = [name for name in after if name in before and name not in ignore and not name.endswith(HIDDEN)]
    return [f"{name}: was {before[name]}, is {after[name]}" for name in names if before[name] != after[name]]
