"""Inputs of experiments: one per host, each with a position that can be saved and restored.

Reading order: `windows`, `base_input`, `order`, `streams`, `seqio_input`, then the others. None of them imports jax.
"""

from xdpx.datasets.inputs.adaptors import (
    IterableAdaptor,
    LingvoInputAdaptor,
    LingvoInputAdaptorNewBatchSize,
    RebatchAdaptor,
)
from xdpx.datasets.inputs.ahead_of_time import PrefetchedInput, build_input
from xdpx.datasets.inputs.base_input import ArraySpec, BaseInput, with_hosts
from xdpx.datasets.inputs.codecs import Characters, Codec, HouseTokenizer, SentencePiece
from xdpx.datasets.inputs.converters import (
    FeatureConverter,
    LanguageModelFeatures,
    PrefixLMFeatures,
    SequenceModelFeatures,
)
from xdpx.datasets.inputs.eval_adaptors import (
    LazyEvalAdaptor,
    LingvoEvalAdaptor,
    LingvoLazyEvalAdaptor,
    PaddedEvalAdaptor,
)
from xdpx.datasets.inputs.libraries import ArrayRecords, SavedDataset
from xdpx.datasets.inputs.multi_input import MultiInput
from xdpx.datasets.inputs.peeking import peek_input, peek_inputs, warn_about, warnings_about
from xdpx.datasets.inputs.seqio_input import SeqIOInput
from xdpx.datasets.inputs.seqio_metrics import eval_inputs_of_tasks
from xdpx.datasets.inputs.seqio_tasks import Mixture, Task, register_task
from xdpx.datasets.inputs.sources import Arrays, NumpyFiles, Source, StoreFile, TextFiles
from xdpx.datasets.inputs.synthetic import SyntheticInput
from xdpx.datasets.inputs.windows import EvalWindow, first, full_epoch, parse_window, rolling, walk, window_of

__all__ = [
    "ArrayRecords",
    "ArraySpec",
    "Arrays",
    "BaseInput",
    "Characters",
    "Codec",
    "EvalWindow",
    "FeatureConverter",
    "HouseTokenizer",
    "IterableAdaptor",
    "LanguageModelFeatures",
    "LazyEvalAdaptor",
    "LingvoEvalAdaptor",
    "LingvoInputAdaptor",
    "LingvoInputAdaptorNewBatchSize",
    "LingvoLazyEvalAdaptor",
    "Mixture",
    "MultiInput",
    "NumpyFiles",
    "PaddedEvalAdaptor",
    "PrefetchedInput",
    "PrefixLMFeatures",
    "RebatchAdaptor",
    "SavedDataset",
    "SentencePiece",
    "SeqIOInput",
    "SequenceModelFeatures",
    "Source",
    "StoreFile",
    "SyntheticInput",
    "Task",
    "TextFiles",
    "build_input",
    "eval_inputs_of_tasks",
    "first",
    "full_epoch",
    "parse_window",
    "peek_input",
    "peek_inputs",
    "register_task",
    "rolling",
    "walk",
    "warn_about",
    "warnings_about",
    "window_of",
    "with_hosts",
]
