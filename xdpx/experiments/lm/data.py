"""Inputs of the language model experiments: synthetic rows, random vectors, and text from wherever a field says."""

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
from xdpx.datasets.inputs.order import part_of
from xdpx.engines.spmd import world
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.partitioning import infeed
from xdpx.experiments.planning import rules_of
from xdpx.utils import io
from xdpx.utils.nested_map import NestedMap

Fields = Any
"""A recipe, of which fields are read; it asks for its inputs here, so it is not named."""

CHARACTERS = "characters"
"""As VOCABULARY: every character of the training text is a token."""

EOS = 1
"""Of vocabularies that do not say how a text ends."""

MODEL_ENDING = ".model"
"""Of files of SentencePiece."""


def rows_per_host(fields: Fields) -> int:
    """Return the rows of a batch that each input makes: processes that hold the same rows read the same input."""
    total = int(fields.global_batch())
    if world.process_count() == 1:
        return total
    shape = fields.mesh_shape()
    _, inputs = infeed(rules_of(fields), make_mesh(shape.ici, shape.dcn, shape.names))
    return total // inputs


def synthetic_inputs(fields: Fields) -> list[Any]:
    """Return constant tokens to train and to evaluate on."""
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
    """Random vectors, each with the class of the nearest of a few directions: what a classifier can learn."""

    class HParams(BaseInput.HParams):
        """What the input can be told.

        Attributes:
            dims: width of a vector.
            num_classes: how many directions.
        """

        dims: int = 16
        num_classes: int = 8

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        self._batch = 0
        self._directions = np.random.default_rng(0).standard_normal((hparams.dims, hparams.num_classes))

    def get_next(self) -> NestedMap:
        """Make this host's rows of the next batch: those that a single host would have at this place."""
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
        """Begin anew."""
        super().reset()
        self._batch = 0

    def get_state(self) -> State:
        """Tell how many batches were made."""
        return {"batches": self._batch}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on there, without making the batches before."""
        self._batch = state_number(state, "batches", self)

    def spec(self) -> NestedMap:
        """Return the ArraySpec of every array."""
        rows, number = self.hparams.batch_size, np.dtype(np.float32)
        return NestedMap(
            inputs=ArraySpec((rows, self.hparams.dims), number),
            class_ids=ArraySpec((rows,), np.dtype(np.int32)),
            eval_sample_weights=ArraySpec((rows,), number),
        )


def vector_inputs(fields: Fields) -> list[Any]:
    """Return random vectors to train and to evaluate on."""
    common = {"batch_size": rows_per_host(fields), "dims": fields.INPUT_DIMS, "num_classes": fields.NUM_CLASSES}
    return [
        VectorInput.HParams(is_training=True, **common),
        VectorInput.HParams(name="vectors", input_random_seed=1, eval_window=first(1), **common),
    ]


def text_inputs(fields: Fields) -> list[Any]:
    """Return the text to train on, packed, and the text to evaluate on, where one is named.

    Raises:
        ConfigError: a field does not say where the text or its vocabulary is.
    """
    faults = [
        Fault(name, "is not set.", f"Say {what}: --set {name}=...")
        for name, what in (("TRAIN_DATA", "where the training text is"), ("VOCABULARY", "which tokenizer reads it"))
        if getattr(fields, name) is None
    ]
    faults += [
        Fault(name, f"is '{path}', where nothing is.", "Give a file, a pattern with *, or the folder of a data set.")
        for name, path in (("TRAIN_DATA", fields.TRAIN_DATA), ("EVAL_DATA", fields.EVAL_DATA))
        if path is not None and "*" not in path and not io.exists(path)
    ]
    if faults:
        raise ConfigError(type(fields).__name__, faults)
    sources = {"train": _source(str(fields.TRAIN_DATA))}
    if fields.EVAL_DATA is not None:
        sources["validation"] = _source(fields.EVAL_DATA)
    vocabulary = _vocabulary(fields)
    eos_id = build(vocabulary).end if isinstance(vocabulary, SentencePiece.HParams) else EOS
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
    """Choose the source by what a path names."""
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


def _sentencepiece_in(path: str) -> str | None:
    """Return the model of SentencePiece that a path names, or that lies in a folder without another tokenizer."""
    if path.endswith(MODEL_ENDING):
        return path
    if not io.isdir(path) or io.isfile(io.join(path, "tokenizer.json")):
        return None
    return next((io.join(path, name) for name in sorted(io.listdir(path)) if name.endswith(MODEL_ENDING)), None)
