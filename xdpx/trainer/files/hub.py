"""Upload a run to the Hugging Face hub: at its end, or with each checkpoint during training."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from xdpx.checkpoints import parts
from xdpx.checkpoints.folders import PREFIX
from xdpx.checkpoints.foreign import shards
from xdpx.logger import log
from xdpx.utils import hub, io

NOT_PUSHED = ("_*", f"{PREFIX}*", ".lease/*", "status.json*")
"""Files of a run's folder that are not uploaded: checkpoints (they hold the optimizer's state), private files, lease
and status of the run."""
LAST = "last-checkpoint"
STRATEGIES = ("end", "every_save", "checkpoint", "all_checkpoints")
_MODEL_FILES = (
    parts.CONFIG, parts.GENERATION_CONFIG, parts.WEIGHTS, parts.OLD_WEIGHTS, parts.ARGUMENTS,
    parts.ADAPTER_CONFIG, parts.ADAPTER, parts.OLD_ADAPTER,
)  # fmt: skip


class HubUnreachable(ConnectionError):
    """The hub cannot be reached from here; the message says what to do instead."""


@dataclass
class Push:
    """One upload, perhaps in progress: the folder, and the future of the upload."""

    folder: str
    future: Any


@dataclass
class Hub:
    """A repository on the hub, and the uploads to it.

    Args:
        name: `owner/model`, or `model` for the user's own.
        token: for writing; None for the one stored by `hf auth login`.
        private: whether a new repository is private; None for the owner's default.
        revision: the branch to write to; None for `main`.
        strategy: what is pushed during training, one of `STRATEGIES`.
        always_push: start a push even if another is in progress; else it is skipped.
        api: client of the hub; by default `huggingface_hub.HfApi()`.
    """

    name: str
    token: str | None = field(default=None, repr=False)
    private: bool | None = None
    revision: str | None = None
    strategy: str = "every_save"
    always_push: bool = False
    api: Any = None
    repo_id: str = ""
    _pushes: list[Push] = field(default_factory=list)

    def open(self) -> str:
        """Create the repository unless it exists, and return its full name.

        Raises:
            HubUnreachable: there is no connection to the hub.
        """
        if self.api is None:
            _must_be_reachable(self.name)
            from huggingface_hub import HfApi

            self.api = HfApi()
        made = self.api.create_repo(self.name, token=self.token, private=self.private, exist_ok=True)
        self.repo_id = made.repo_id
        return self.repo_id

    # ---- push

    def push(self, folder: str, message: str, *, blocking: bool = True, **options: Any) -> Any:
        """Upload the folder of a run without its checkpoints, as one commit.

        Args:
            folder: local.
            message: of the commit.
            blocking: wait for the upload, and return the commit; else return a future.
            options: for `HfApi.upload_folder`, e.g. `revision`, `token`.
        """
        self.wait()
        return self._upload(folder, message, blocking=blocking, ignore=NOT_PUSHED, **options)

    def push_checkpoint(self, checkpoint: str, folder: str, message: str, *, processing_class: Any = None) -> bool:
        """Upload the model of a checkpoint, if the strategy says so, without waiting.

        The files are copied to the folder of the run first, so that the checkpoint may be deleted during the upload.

        Args:
            checkpoint: the checkpoint's folder.
            folder: that of the run.
            message: of the commit, e.g. `Training in progress, step 500`.
            processing_class: a tokenizer or processor; its files are uploaded, too.

        Returns:
            Whether a push was started.
        """
        if not self.takes_checkpoints:
            return False
        self._report_finished()
        for name in _files_of_model(checkpoint):
            io.copy(io.join(checkpoint, name), io.join(folder, name))
        if processing_class is not None:
            processing_class.save_pretrained(folder)
        self._later(folder, message, ignore=NOT_PUSHED)
        if self.strategy in {"checkpoint", "all_checkpoints"}:
            place = LAST if self.strategy == "checkpoint" else io.name(checkpoint)
            self._later(checkpoint, f"{message}, checkpoint", path_in_repo=place)
        return True

    def _later(self, folder: str, message: str, **options: Any) -> None:
        self._pushes.append(Push(folder, self._upload(folder, message, blocking=False, **options)))

    def _upload(self, folder: str, message: str, *, blocking: bool, ignore: Sequence[str] = (), **options: Any) -> Any:
        if not self.repo_id:
            self.open()
        asked = {"token": self.token, "revision": self.revision, **options}
        return self.api.upload_folder(
            repo_id=self.repo_id,
            folder_path=folder,
            commit_message=message,
            run_as_future=not blocking,
            ignore_patterns=list(ignore) or None,
            **asked,
        )

    # ---- uploads in progress

    @property
    def takes_checkpoints(self) -> bool:
        """Whether a checkpoint would be pushed now: by the strategy, and unless another push is in progress."""
        return self.strategy != "end" and (self.always_push or not self.is_busy)

    @property
    def is_busy(self) -> bool:
        """Whether a push is in progress."""
        return any(not push.future.done() for push in self._pushes)

    def busy_folders(self) -> list[str]:
        """Return the folders that are being uploaded, which must not be deleted."""
        return [push.folder for push in self._pushes if not push.future.done()]

    def wait(self) -> None:
        """Wait for all pushes. A failed one is only logged: it must not end a training."""
        if self.is_busy:
            log.info("Waiting for the upload to the Hub to finish. This may take some minutes.")
        for push in self._pushes:
            with contextlib.suppress(Exception):
                push.future.result()
        self._report_finished()

    def _report_finished(self) -> None:
        finished = [push for push in self._pushes if push.future.done()]
        self._pushes = [push for push in self._pushes if not push.future.done()]
        for push in finished:
            error = push.future.exception()
            if error is not None:
                log.warning(f"{push.folder} could not be pushed to {self.repo_id}: {error}. The local copy is kept.")


def _files_of_model(checkpoint: str) -> list[str]:
    names = [name for name in _MODEL_FILES if io.isfile(io.join(checkpoint, name))]
    for index in (parts.WEIGHTS_INDEX, parts.OLD_WEIGHTS_INDEX):
        if io.isfile(io.join(checkpoint, index)):
            names += [index, *shards(io.join(checkpoint, index))]
    return names


def _must_be_reachable(name: str) -> None:
    if hub.is_reachable():
        return
    why = "HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE") else "there is no connection to it"
    raise HubUnreachable(
        f"push_to_hub: the Hugging Face hub cannot be reached from here ({why}), so nothing can go to '{name}'. "
        f"Use push_to_hub=False; what is saved in output_dir can be uploaded later: hf upload {name} <output_dir>"
    )
