"""What callbacks written for the Trainer read as `args` where another door trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.trainer.arguments import TrainingArguments


class CallbackArguments(TrainingArguments):
    """Arguments of a Trainer that say what a training of another door does. Its own settings can be read as well.

    Args:
        folder: where the training writes.
        own: its settings, by their own names.
        known: the same by the names of the Trainer, as far as it can be told.
        door: what to call the training where a setting is asked for that nobody has.
    """

    def __init__(self, folder: str, own: Mapping[str, Any], known: Mapping[str, Any], *, door: str) -> None:
        super().__init__(folder)
        self._own, self._door = dict(own), door
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        """Return a setting that no Trainer has."""
        own = vars(self).get("_own", {})
        if name not in own:
            door = vars(self).get("_door", "this training")
            raise AttributeError(f"neither TrainingArguments nor {door} has '{name}'.")
        return own[name]
