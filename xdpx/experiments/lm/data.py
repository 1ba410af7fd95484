"""Inputs of the language model experiments: synthetic tokens, random vectors, and text from the paths in fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.hparams import BaseHParams, build
from xdpx.datasets.inputs import (
    ArrayRecords,
    ArraySpec,
    BaseInput,
    Characters,
    HouseTokenizer,
    LanguageModelFeatures,
    NumpyFiles,
    SavedDataset,
    SentencePiece,
    SeqIOInput,
    SyntheticInput,
    Task,
    TextFiles,
    first,
    full_epoch,
)
from xdpx.datasets.inputs.base_input import State, state_number
from xdpx.datasets.inputs.codecs import Codec
from xdpx.datasets.inputs.order import part_of
from xdpx.engines.spmd import world
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.partitioning import infeed
from xdpx.experiments.planning import rules_of
from xdpx.utils import io
from xdpx.utils.nested_map import NestedMap

Fields = Any
"""A recipe of `model_params`. Untyped, because that module imports this one."""

CHARACTERS = "characters"
"""As VOCABULARY: every character of the training text becomes a token."""

EOS = 1
"""End-of-text id for vocabularies that do not define one, such as BERT's, where it is `[unused0]`."""

MODEL_ENDING = ".model"
"""Suffix of SentencePiece model files."""


def rows_per_host(fields: Fields) -> int:
    """Return the batch rows per input; processes that hold the same rows read the same input."""
    total = int(fields.global_batch())
    if world.process_count() == 1:
        return total
    shape = fields.mesh_shape()
    _, inputs = infeed(rules_of(fields), make_mesh(shape.ici, shape.dcn, shape.names))
    return total // inputs


def synthetic_inputs(fields: Fields) -> list[Any]:
    """Return synthetic token inputs for training and evaluation."""
    common = {
        "batch_size": rows_per_host(fields),
        "seq_len": fields.MAX_SEQ_LEN,
        "vocab_size": fields.VOCAB_SIZE,
        "pattern": fields.SYNTHETIC_PATTERN,
    }
    return [
        SyntheticInput.HParams(is_training=True, **common),
        SyntheticInput.HParams(name="synthetic", eval_window=first(fields.EVAL_NUM_BATCHES), **common),
    ]


class VectorInput(BaseInput):
    """Random vectors, each labelled with the best-matching of a few directions: a learnable classification task."""

    class HParams(BaseInput.HParams):
        """The options of the input.

        Attributes:
            dims: width of a vector.
            num_classes: number of directions.
        """

        dims: int = 16
        num_classes: int = 8

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        self._batch = 0
        self._directions = np.random.default_rng(0).standard_normal((hparams.dims, hparams.num_classes))

    def get_next(self) -> NestedMap:
        """Return this host's rows of the next batch; all hosts together make the batch that a single host would."""
        p = self.hparams
        dice = np.random.default_rng((p.input_random_seed or 0, self._batch))
        self._batch += 1
        rows = part_of(p.batch_size, self.num_hosts, self.host_index, first=0)
        vectors = dice.standard_normal((self.global_batch_size, p.dims))[rows]
        return NestedMap(
            inputs=vectors.astype(np.float32),
            class_ids=(vectors @ self._directions).argmax(-1).astype(np.int32),
            eval_sample_weights=np.ones(p.batch_size, np.float32),
        )

    def reset(self) -> None:
        """Start again from the first batch."""
        super().reset()
        self._batch = 0

    def get_state(self) -> State:
        """Return the number of batches made."""
        return {"batches": self._batch}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue after the given number of batches, without making them."""
        self._batch = state_number(state, "batches", self)

    def spec(self) -> NestedMap:
        """Return the ArraySpec of each array."""
        rows, number = self.hparams.batch_size, np.dtype(np.float32)
        return NestedMap(
            inputs=ArraySpec((rows, self.hparams.dims), number),
            class_ids=ArraySpec((rows,), np.dtype(np.int32)),
            eval_sample_weights=ArraySpec((rows,), number),
        )


def vector_inputs(fields: Fields) -> list[Any]:
    """Return random vector inputs for training and evaluation."""
    common = {"batch_size": rows_per_host(fields), "dims": fields.INPUT_DIMS, "num_classes": fields.NUM_CLASSES}
    return [
        VectorInput.HParams(is_training=True, **common),
        VectorInput.HParams(name="vectors", input_random_seed=1, eval_window=first(1), **common),
    ]


def text_inputs(fields: Fields) -> list[Any]:
    """Return the input for training, packed, and the one for evaluation if EVAL_DATA is set.

    Raises:
        ConfigError: the path of the text or the vocabulary is not set, or does not exist.
    """
    faults = [
        Fault(name, "is not set.", f"Say {what}: --set {name}=...")
        for name, what in (
            ("TRAIN_DATA", "where the training text is"),
            ("VOCABULARY", "which tokenizer to read it with"),
        )
        if getattr(fields, name) is None
    ]
    faults += [
        Fault(
            name, f"is '{path}', which does not exist.", "Give a file, a pattern with *, or the folder of a data set."
        )
        for name, path in (("TRAIN_DATA", fields.TRAIN_DATA), ("EVAL_DATA", fields.EVAL_DATA))
        if path is not None and "*" not in path and not io.exists(path)
    ]
    if faults:
        raise ConfigError(type(fields).__name__, faults)
    sources = {"train": _source(str(fields.TRAIN_DATA))}
    if fields.EVAL_DATA is not None:
        sources["validation"] = _source(fields.EVAL_DATA)
    vocabulary = _vocabulary(fields)
    eos_id = _end_of_text(fields, build(vocabulary))
    task = Task.HParams(
        name="c4",
        source=sources,
        vocabulary=vocabulary,
        features={"targets": "targets" if isinstance(sources["train"], NumpyFiles.HParams) else fields.TEXT_FIELD},
        add_eos=("targets",),
        eos_id=eos_id,
    )
    return [_text_input(fields, task, split) for split in sources]


def _text_input(fields: Fields, task: Any, split: str) -> Any:
    training = split == "train"
    template = SeqIOInput.HParams(
        name=split,
        mixture_or_task=task,
        split_name=split,
        task_feature_lengths={"targets": fields.MAX_SEQ_LEN},
        feature_converter=LanguageModelFeatures.HParams(
            pack=training and fields.PACKED_INPUT, with_inputs=False, reverse_bos_padding=True, eos_id=task.eos_id
        ),
        batch_size=rows_per_host(fields),
        is_training=training,
        input_random_seed=fields.TRAINING_SEED if training else None,
    )
    if not training:
        template.eval_window = full_epoch if fields.EVAL_NUM_BATCHES is None else first(fields.EVAL_NUM_BATCHES)
    return template


def _source(path: str) -> Any:
    """Return the source that fits the format of a path."""
    if ".npy" in path:
        return NumpyFiles.HParams(paths={"targets": path})
    if "array_record" in path or ".arrayrecord" in path:
        return ArrayRecords.HParams(paths=path)
    if "*" not in path and io.isdir(path):
        return SavedDataset.HParams(path=path)
    return TextFiles.HParams(paths=path)


def _vocabulary(fields: Fields) -> Any:
    if fields.VOCABULARY == CHARACTERS:
        return Characters.HParams(alphabet_from=fields.TRAIN_DATA)
    model_file = _sentencepiece_in(str(fields.VOCABULARY))
    if model_file is not None:
        return SentencePiece.HParams(model_file=model_file)
    return HouseTokenizer.HParams(vocab_file=fields.VOCABULARY)


def _end_of_text(fields: Fields, codec: Codec) -> int:
    """Return the id that ends a text. Raises ConfigError if it stands for a part of a text, or is not known."""
    chosen: int | None = fields.EOS_ID
    if chosen is not None and not 0 <= chosen < codec.vocab_size:
        problem = f"is {chosen}, but the ids of the vocabulary are 0 to {codec.vocab_size - 1}."
        raise ConfigError(type(fields).__name__, [Fault("EOS_ID", problem, "Give the id of its end of a text.")])
    found = codec.end if chosen is None else chosen
    if found is None and (codec.vocab_size <= EOS or codec.is_text(EOS)):
        problem = f"is not set; the vocabulary names no end of a text, and id {EOS} stands for a part of a text."
        raise ConfigError(type(fields).__name__, [Fault("EOS_ID", problem, "Give the id that is to end each text.")])
    return EOS if found is None else found


def _sentencepiece_in(path: str) -> str | None:
    """Return the SentencePiece model that a path names, or that is in a folder without a tokenizer.json; else None."""
    if path.endswith(MODEL_ENDING):
        return path
    if not io.isdir(path) or io.isfile(io.join(path, "tokenizer.json")):
        return None
    return next((io.join(path, name) for name in sorted(io.listdir(path)) if name.endswith(MODEL_ENDING)), None)
