"""A language model over characters, a whole experiment in one file: `x-exp examples/spmd/my.py:Exp --job_log_dir=DIR`.

`Exp` is the smallest model of nanoGPT's readme (4 layers, width 128, 64 characters); `ExpSharded` the same on a mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.datasets.inputs import Arrays, Characters, LanguageModelFeatures, SeqIOInput, Task, TextFiles, full_epoch
from xdpx.experiments.lm.data import rows_per_host
from xdpx.experiments.lm.model_params import TransformerLm
from xdpx.experiments.registry import experiment
from xdpx.utils import io


@experiment
class Exp(TransformerLm):
    """Four layers that read 64 characters.

    Attributes:
        DATA: folder with train.txt and valid.txt, any path; `prepare.py` writes one.
        PROMPTS: what decoding goes on from.
        NEW_CHARACTERS: of each sample; with the prompt no more than MAX_SEQ_LEN, which is all the model knows.
        TEMPERATURE: below 1 the likely becomes likelier.
    """

    DATA: str = "out/text"
    PROMPTS: Sequence[str] = ("The ", "When a ", "def ", "If the ")
    NEW_CHARACTERS: int = 54
    TEMPERATURE: float = 0.8

    NUM_LAYERS = 4
    MODEL_DIMS = 128
    DIMS_PER_HEAD = 32
    VOCAB_SIZE = 128
    MAX_SEQ_LEN = 64
    PERCORE_BATCH_SIZE = 12
    ACTIVATION = "GELU"
    USE_REPEATED_LAYER = True
    CHECKPOINT_POLICY = "save_everything"
    PACKED_INPUT = False

    MAX_STEPS = 2000
    LEARNING_RATE: float | None = 2e-3
    LR_SCHEDULE = "linear_rampup_cosine_decay"
    LR_COS_WARMUP = 100
    LR_COS_DECAY_START = 101
    LR_COS_DECAY_END = 2000
    WEIGHT_DECAY = 0.1
    CLIP_GRADIENT_NORM_TO_VALUE = 1.0
    CHECKPOINT_EVERY_N_STEPS = 500
    CHECKPOINT_MAX_TO_KEEP = 2
    SUMMARY_INTERVAL_STEPS = 20
    EVAL_INTERVAL_STEPS = 250

    def validate(self) -> None:
        """Refuse a folder without text, before anything starts."""
        super().validate()
        missing = [name for name in ("train.txt", "valid.txt") if not io.isfile(io.join(self.DATA, name))]
        if missing:
            remedy = f"Run: python examples/spmd/prepare.py {self.DATA}"
            raise ConfigError(type(self).__name__, [Fault("DATA", f"'{self.DATA}' has no {missing[0]}.", remedy)])

    def task(self) -> Any:
        """Return the recipe's task, with a decoder that samples."""
        from xdpx.models.spmd.decoding.sampling import SampleDecoder

        task = super().task()
        task.model.decoder_tpl = SampleDecoder.HParams(
            max_decode_steps=self.NEW_CHARACTERS, temperature=self.TEMPERATURE, k=0, eos_id=None
        )
        return task

    def datasets(self) -> list[Any]:
        """Return the text cut into rows: shuffled again in each epoch to train on, once in order to evaluate."""
        text = Task.HParams(
            name="text",
            source={name: self._file(f"{name}.txt") for name in ("train", "valid")},
            vocabulary=self._alphabet(),
            features={"targets": "text"},
            chunk=self.MAX_SEQ_LEN,
        )
        common: Mapping[str, Any] = {
            "mixture_or_task": text,
            "task_feature_lengths": {"targets": self.MAX_SEQ_LEN},
            "feature_converter": LanguageModelFeatures.HParams(with_inputs=False),
            "batch_size": rows_per_host(self),
        }
        return [
            SeqIOInput.HParams(name="train", split_name="train", is_training=True, **common),
            SeqIOInput.HParams(name="valid", split_name="valid", eval_window=full_epoch, **common),
        ]

    def decode_datasets(self) -> list[Any]:
        """Return the prompts."""
        prompts = Task.HParams(
            name="prompts",
            source=Arrays.HParams(columns={"inputs": list(self.PROMPTS), "targets": [" "] * len(self.PROMPTS)}),
            vocabulary=self._alphabet(),
            features={"inputs": "inputs", "targets": "targets"},
        )
        return [
            SeqIOInput.HParams(
                name="samples",
                mixture_or_task=prompts,
                task_feature_lengths={"inputs": self.MAX_SEQ_LEN // 2, "targets": 1},
                batch_size=rows_per_host(self),
                eval_window=full_epoch,
            )
        ]

    def _file(self, name: str) -> Any:
        return TextFiles.HParams(paths=io.join(self.DATA, name), whole_files=True)

    def _alphabet(self) -> Any:
        return Characters.HParams(alphabet_from=io.join(self.DATA, "train.txt"))


@experiment
class ExpSharded(Exp):
    """The same model on eight devices: rows over two of them, weights over two, matrices over two."""

    ICI_MESH_SHAPE = (2, 2, 2)
    PERCORE_BATCH_SIZE = 1.5
