"""Make libraries that subclass the original Trainer (TRL, sentence-transformers) subclass ours."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from xdpx.trainer.arguments import Seq2SeqTrainingArguments, TrainingArguments
from xdpx.trainer.seq2seq import Seq2SeqTrainer
from xdpx.trainer.trainer import Trainer

OURS = {
    "transformers.trainer": (Trainer,),
    "transformers.trainer_seq2seq": (Seq2SeqTrainer,),
    "transformers.training_args": (TrainingArguments,),
    "transformers.training_args_seq2seq": (Seq2SeqTrainingArguments,),
}
"""Our classes, by the module of the original of the same name."""


def stand_in_for_transformers() -> None:
    """Replace the Trainer and arguments of `transformers`, also those for seq2seq, by ours.

    Call it before importing anything that subclasses them: from then on `transformers.Trainer` and
    `transformers.trainer.Trainer` are ours. Do not assign them by hand: transformers replaces its own module while it
    is imported, so the assignment may silently hit a module that is no longer used.

    Raises:
        RuntimeError: a class already subclasses the original, and would keep doing so.
    """
    for module_name, classes in OURS.items():
        module = import_module(module_name)
        for ours in classes:
            _refuse_late(getattr(module, ours.__name__), ours)
    for module_name, classes in OURS.items():
        for ours in classes:
            for module in (import_module(module_name), sys.modules["transformers"]):
                setattr(module, ours.__name__, ours)


def _refuse_late(original: Any, ours: type) -> None:
    """Raise RuntimeError if a class of another package already subclasses the original."""
    late = [kind for kind in original.__subclasses__() if not kind.__module__.startswith("transformers.")]
    if original is not ours and late:
        module = late[0].__module__
        raise RuntimeError(
            f"stand_in_for_transformers: {module}.{late[0].__qualname__} derives from the original {ours.__name__} "
            f"already. Call it at the top of the program, before {module.partition('.')[0]} is imported."
        )
