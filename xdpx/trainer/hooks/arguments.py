"""The `args` of callbacks written for the Trainer, in trainings of x-train and x-exp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.trainer.arguments import TrainingArguments


class CallbackArguments(TrainingArguments):
    """TrainingArguments with the values of another kind of training, whose own settings can be read as well.

    Args:
        folder: the output folder of the training.
        own: its settings, by their own names.
        known: the same by the names of the Trainer, if they have a counterpart.
        door: name of the training in messages about unknown settings.
    """

    def __init__(self, folder: str, own: Mapping[str, Any], known: Mapping[str, Any], *, door: str) -> None:
        super().__init__(folder)
        self._own, self._door = dict(own), door
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        """Return a setting that the Trainer does not have."""
        own = vars(self).get("_own", {})
        if name not in own:
            door = vars(self).get("_door", "this training")
            raise AttributeError(f"neither TrainingArguments nor {door} has '{name}'.")
        return own[name]
