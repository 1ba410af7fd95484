"""The folder `transformers` of a run: the best checkpoint so far, in the form `from_pretrained` and `pipeline` open.

Its weights are a hard link to the checkpoint's file, so they take neither disk space nor time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from xdpx.checkpoints import aliases, layout
from xdpx.config.args_file import PREPRO_ARGS
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.config.stored_args import read_prepro_args
from xdpx.inference.transformers_folder import (
    THRESHOLD,
    decides_otherwise,
    own_reading,
    problem_of,
    texts_of,
    tokenizer_of,
)
from xdpx.logger import log
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils import commit, io
from xdpx.utils.owners import new_owner_id, temporary_name

if TYPE_CHECKING:
    from xdpx.models.pytorch.library_form import Form
    from xdpx.processors.base import Processor

FOLDER = "transformers"
WEIGHTS = "pytorch_model.bin"
"""A checkpoint is what torch.save wrote, which the library reads under this name."""
_EXPORT = "x-script export_hf save_dir={folder} out_dir=... writes {what}"


class LibraryFolder(Callback):
    """Writes the config into the folder, and links the weights of each new best checkpoint. Must come after Saving.

    Args:
        save_dir: of the run.
        data_dir: of the run, for the tokenizer.
        loss: of the run, which determines how outputs are interpreted.
        labels: names of the classes.
        processor: of the run, which adds special tokens to texts.
    """

    def __init__(
        self, save_dir: str, data_dir: str, *, loss: Any, labels: list[str] | None, processor: Processor
    ) -> None:
        self._save_dir, self._data_dir, self._folder = save_dir, data_dir, io.join(save_dir, FOLDER)
        self._loss, self._labels, self._processor = loss, labels, processor
        self._advice = ""
        self._linked: int | None = None
        self._works = False

    def on_start(self, session: Session) -> None:
        """Find the corresponding transformers model, and write the files that belong beside its weights."""
        try:
            self._begin(session)
        except Exception as error:  # a user's tokenizer, loss or config may not fit; this must not end the training
            log.warning(f"{self._folder} is not written: {type(error).__name__}: {error}")

    def _begin(self, session: Session) -> None:
        form = self._form(session)
        if form is None:
            return
        prepro = None
        with suppress(ConfigError, OSError):
            kept = read_prepro_args(io.join(self._save_dir, PREPRO_ARGS))
            prepro = resolve(kept, "x-prepro", source=PREPRO_ARGS, strict=False, paths=False)
        tokenizer = tokenizer_of(prepro, self._data_dir)
        texts, without = texts_of(form, self._processor, tokenizer)
        if without:
            log.info(f"{self._folder} has no tokenizer: {without}")
        elif own := own_reading(prepro, tokenizer, self._processor):
            log.warning(f"{self._folder}: {own}")
        if decides_otherwise(self._loss):
            log.info(f"{self._folder}: {THRESHOLD}")
        io.makedirs(self._folder)
        commit.sweep(self._folder)
        for name, text in texts.items():
            commit.write_text(io.join(self._folder, name), text)
        self._works = True
        self._link()

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Link the weights of the best checkpoint if it has changed."""
        if self._works and session.progress.just_evaluated:
            self._link()
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Link the weights of the best checkpoint, and log how the folder is used."""
        if self._works:
            self._link()
        if self._works and self._linked is not None and not self._advice:
            log.info(f"{self._folder}: step {self._linked}, for from_pretrained and pipeline of transformers")
        elif self._advice:
            log.info(self._advice)

    def _form(self, session: Session) -> Form | None:
        """Return the transformers form of the network; None if its checkpoints cannot be opened as they are."""
        from xdpx.models.pytorch.base import Model
        from xdpx.models.pytorch.preparing import bare

        model = bare(session.state.task.model)
        if not (isinstance(model, Model) and model.is_of_library):
            return None
        from xdpx.models.pytorch.library_form import Inexpressible, form_of

        self._advice = _EXPORT.format(folder=self._save_dir, what="this model for transformers")
        kind = next(
            each for each in type(model).__mro__ if not each.__module__.startswith("torch.")
        )  # FSDP adds its own
        own_code = not kind.__module__.startswith("xdpx.")  # may compute anything: export_hf compares
        if own_code or not io.islocal(self._save_dir):
            return None
        try:
            form = form_of(model, problem_of(self._loss), self._labels)
        except Inexpressible:
            return None
        if not form.kind:
            what = "the encoder alone for transformers"
            self._advice = f"{_EXPORT.format(folder=self._save_dir, what=what)}: {form.reason}"
            return None
        if not form.as_they_are:
            return None
        self._advice = ""
        return form

    def _link(self) -> None:
        try:
            try:
                step = aliases.best_step(self._save_dir)
            except FileNotFoundError:  # not kept, or every score was NaN
                step = aliases.last_step(self._save_dir)
            if step == self._linked:
                return
            _second_name(io.join(self._save_dir, layout.weights_file(step)), io.join(self._folder, WEIGHTS))
            self._linked = step
        except FileNotFoundError:  # nothing is saved yet
            return
        except OSError as error:  # a filesystem without hard links
            self._works, self._advice = False, _EXPORT.format(folder=self._save_dir, what="a copy for transformers")
            log.warning(f"{self._folder}: no second name for a checkpoint can be made ({error.strerror or error})")
            with suppress(OSError):
                io.remove(self._folder)


def _second_name(path: str, name: str) -> None:
    """Atomically replace `name` by a hard link to the file at `path`."""
    files, beside = io.local_files, temporary_name(name, new_owner_id())
    files.link(path, beside)
    files.rename(beside, name)
    with suppress(FileNotFoundError):  # if both were the same file already, nothing was renamed
        files.unlink(beside)
