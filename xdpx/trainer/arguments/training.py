"""`TrainingArguments`: all settings of a Trainer in one object."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from xdpx.config.faults import ConfigError
from xdpx.logger import log
from xdpx.trainer.arguments import deepspeed, fsdp, hardware, printing
from xdpx.trainer.arguments.checking import faults_of
from xdpx.trainer.arguments.fields import option
from xdpx.trainer.arguments.fsdp import FsdpOptions
from xdpx.trainer.arguments.hardware import CompileOptions
from xdpx.trainer.arguments.legacy import OLD_NAMES, AcceptsOldNames, OldAttribute, was_written
from xdpx.trainer.arguments.normalising import normalise
from xdpx.trainer.arguments.places import ProcessFields
from xdpx.trainer.arguments.setters import Setters
from xdpx.utils.distributed_utils import get_world_size


@dataclass(repr=False)
class TrainingArguments(Setters, ProcessFields, metaclass=AcceptsOldNames):
    """All settings of a Trainer: what to learn, when to log, evaluate and save, and where to run.

    Constructing it has no side effects: no process group, no environment variable, no device. Deprecated names are
    accepted, as keywords and on the command line.

    Raises:
        ConfigError: (a ValueError) naming every invalid argument.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [
        "accelerator_config",
        "fsdp_config",
        "deepspeed",
        "activation_checkpointing_kwargs",
        "gradient_checkpointing_kwargs",
        "lr_scheduler_kwargs",
    ]
    """Fields that may be given as JSON text; a subclass with such a field adds its name."""

    _TOLD_APART: ClassVar[frozenset[str]] = frozenset({"logging_nan_inf_filter"})
    """Fields for which it matters whether a user gave them explicitly, even if with the default."""

    def __post_init__(self) -> None:
        """Normalise all arguments and check them together."""
        faults = [*normalise(self, self._VALID_DICT_FIELDS), *faults_of(self)]
        if faults:
            raise ConfigError(type(self).__name__, faults)

    # ---- derived from the arguments

    @property
    def mixed_precision(self) -> str:
        """`bf16`, `fp16` or `no`; from accelerate's launcher if the arguments set neither."""
        own = "fp16" if self.fp16 else "bf16" if self.bf16 else ""
        return own or os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower()

    def tf32_wanted(self) -> bool | None:
        """Return whether float32 products use TF32; None keeps the setting of PyTorch."""
        if self.tf32 is None and self.torch_compile and not self.fp16:
            return True if hardware.has_tf32() else None
        return self.tf32

    @property
    def filters_losses(self) -> bool:
        """Whether `logging_nan_inf_filter` is true and was given explicitly."""
        return bool(self.logging_nan_inf_filter) and "logging_nan_inf_filter" in was_written(self)

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Return the number of warm-up updates of a run of `num_training_steps` updates."""
        steps = self.warmup_steps
        return int(steps) if steps >= 1 else math.ceil(num_training_steps * steps)

    def fsdp_options(self) -> FsdpOptions | None:
        """Return how to shard, by the arguments and accelerate's launcher; None: do not shard. See `FsdpOptions`."""
        return fsdp.fsdp_options(self)

    def compile_options(self) -> CompileOptions | None:
        """Return how to compile the model, by the arguments or accelerate's launcher; None: do not compile."""
        return hardware.compile_options(self)

    def deepspeed_config(
        self, *, hidden_size: int | None = None, num_training_steps: int | None = None
    ) -> dict[str, Any] | None:
        """Return the config of DeepSpeed with "auto" replaced; None if DeepSpeed is not requested.

        Args:
            hidden_size: of the model; None leaves sizes derived from it "auto".
            num_training_steps: updates of the run; None leaves the schedule "auto".

        Raises:
            ValueError: values disagree with arguments; all are listed.
        """
        given = vars(self).get("_world")
        return deepspeed.deepspeed_config(
            self,
            world_size=get_world_size() if given is None else given.size,
            warmup_steps=self.get_warmup_steps(num_training_steps or 0),
            hidden_size=hidden_size,
            num_training_steps=num_training_steps,
        )

    # ---- as plain values

    def to_dict(self) -> dict[str, Any]:
        """Return all arguments as plain values, without tokens; `TrainingArguments(**them)` recreates them."""
        return printing.plain(self)

    def to_json_string(self) -> str:
        """Return all arguments as JSON."""
        return printing.as_json(self.to_dict())

    def to_sanitized_dict(self) -> dict[str, Any]:
        """Return all arguments, and the batch sizes of this process, for a table of hyper-parameters."""
        sizes = {"train_batch_size": self.train_batch_size, "eval_batch_size": self.eval_batch_size}
        return printing.flat(self.to_dict() | sizes)

    def __str__(self) -> str:
        return printing.text(self)

    def __repr__(self) -> str:
        return printing.text(self)


for _name in OLD_NAMES.keys() - {"_n_gpu"}:
    setattr(TrainingArguments, _name, OldAttribute(_name))


@dataclass(repr=False)
class Seq2SeqTrainingArguments(TrainingArguments):
    """All settings of a Seq2SeqTrainer: those of `TrainingArguments`, and how to generate in evaluations."""

    sortish_sampler: bool = option(False, "Accepted without effect; train_sampling_strategy decides the order.")
    predict_with_generate: bool = option(False, "Generate text in evaluations, for metrics such as ROUGE and BLEU.")
    generation_max_length: int | None = option(None, "Most tokens to generate; unset: by the model's config.")
    generation_num_beams: int | None = option(None, "Number of beams; unset: by the model's config.")
    generation_config: str | Path | Any | None = option(
        None, "GenerationConfig: a model's name, a path, or an object of transformers."
    )


def apply_log_level(args: TrainingArguments) -> int:
    """Set the log level of xdpx and transformers in this process, and return it.

    The level is `log_level` if this process logs, else `log_level_replica`. "passive" changes nothing.
    """
    level = args.get_process_log_level()
    if (args.log_level if args.should_log else args.log_level_replica) != "passive":
        from transformers.utils import logging

        log.log_from(level)
        logging.set_verbosity(level)
    return level
