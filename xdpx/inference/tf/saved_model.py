"""Export to a SavedModel, for TensorFlow Serving and other TensorFlow programs, without torch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.config import extras
from xdpx.config.faults import ConfigError, first_line
from xdpx.inference.answering import answering, can_answer
from xdpx.inference.formats import Exportable, Format, Network
from xdpx.inference.saved_program import fixed_axes, refuse_fixed
from xdpx.inference.tf import texts
from xdpx.inference.tf.graph import Graph, program_of
from xdpx.inference.tracing import only_errors_of, work_out_weights
from xdpx.logger import log
from xdpx.utils import commit, io

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.export import ExportedProgram

DEFAULT = "serving_default"
LABELS, WORDS = "labels.txt", "vocab.txt"
"""Files in `assets` that fill the tables of the graph when it is loaded."""
NARROW, WIDE = 1e-5, 1e-4


class SavedModelFormat(Format):
    """A SavedModel of TensorFlow 2, with a free number of rows and free lengths.

    Args:
        signature_def_key: name of the signature that takes token ids.
        init_tables: keep tables of labels and words in the graph, so that `pred` is the text of the label, and a
            signature `text` takes strings, where the tokenizer can be written in TensorFlow.
        fix_len: every text has max_len tokens; shorter ones are padded by the caller.
        check_outputs: allow outputs to differ from the trained model by NARROW, not by WIDE.
    """

    name: ClassVar[str] = "tf"
    file: ClassVar[str] = "saved_model.pb"
    packages: ClassVar[tuple[str, ...]] = ("tensorflow",)
    extra: ClassVar[str] = "tf"

    def __init__(
        self,
        *,
        signature_def_key: str = DEFAULT,
        init_tables: bool = True,
        fix_len: bool = False,
        check_outputs: bool = False,
    ) -> None:
        self._key, self._tables, self._fixed = signature_def_key, init_tables, fix_len
        self.most_difference = NARROW if check_outputs else WIDE  # type: ignore[misc]  # of each one, here

    def write(self, exportable: Exportable, folder: str) -> dict[str, Any]:
        """Write the network with its variables, signatures and assets."""
        tf = extras.tensorflow("export_format", "is 'savedmodel'")
        with contextlib.suppress(RuntimeError):  # TensorFlow is already initialised
            tf.config.threading.set_intra_op_parallelism_threads(1)
        program, names = followed(exportable)
        graph, held = Graph(tf, program), tf.Module()
        axes = fixed_axes(program, exportable)
        if axes and not _is_free(tf, graph, exportable):
            refuse_fixed(axes, exportable)
        held.weights = graph.variables
        labels = self._label_table(tf, exportable, folder, held) if "pred_index" in names else None

        def call(*given: Any) -> dict[str, Any]:
            found = dict(zip(names, graph(given), strict=True))
            return found if labels is None else {**found, "pred": labels.lookup(found["pred_index"])}

        known = exportable.processor.parameters
        length = known.max_len if self._fixed else None
        specs = [
            tf.TensorSpec([None, length] if each.dim() == 2 else [None] * each.dim(), _type(tf, each), name=name)
            for name, each in zip(exportable.inputs, exportable.example(), strict=True)
        ]
        held.call = tf.function(call, input_signature=specs, autograph=False)
        signatures = {self._key: held.call}
        vocabulary = exportable.processor.vocabulary
        if vocabulary is not None:
            commit.write_text(io.join(folder, WORDS), "".join(f"{word}\n" for word in vocabulary.tokens))
            held.words_file = tf.saved_model.Asset(io.join(folder, WORDS))
            if self._tables:
                signatures |= texts.signature(tf, exportable, held, length)
        with only_errors_of("tensorflow"):
            tf.saved_model.save(held, folder, signatures=signatures)
        for name in (WORDS, LABELS):  # copied to assets by now
            if io.isfile(io.join(folder, name)):
                io.remove(io.join(folder, name))
        return {
            "signature": self._key, "signatures": sorted(signatures), "max_len": length,
            "pad_index": exportable.processor.pad_index,
        }  # fmt: skip

    def _label_table(self, tf: ModuleType, exportable: Exportable, folder: str, held: Any) -> Any:
        if not self._tables or not exportable.labels or any("\n" in label for label in exportable.labels):
            return None
        path = io.join(folder, LABELS)
        commit.write_text(path, "".join(f"{label}\n" for label in exportable.labels))
        held.labels_file = tf.saved_model.Asset(path)
        filled = tf.lookup.TextFileInitializer(
            held.labels_file, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER, tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
        )  # fmt: skip
        held.labels = tf.lookup.StaticHashTable(filled, default_value="")
        return held.labels

    @classmethod
    def open(cls, folder: str, facts: Mapping[str, Any], *, threads: int | None = None) -> Network:
        """Return a function that runs the signature that takes token ids."""
        del threads  # in TensorFlow a setting of the whole process
        tf = extras.tensorflow("save_dir", "is a SavedModel")
        try:
            loaded = tf.saved_model.load(folder)
        except (tf.errors.OpError, OSError, ValueError, AttributeError) as error:
            raise OSError(f"{folder} cannot be opened by TensorFlow: {first_line(error)}") from error
        call, length, pad_index = loaded.signatures[facts["signature"]], facts["max_len"], facts["pad_index"]
        kinds = {spec.name: spec.dtype for spec in call.structured_input_signature[1].values()}

        def run(given: Mapping[str, Any]) -> Mapping[str, NDArray[Any]]:
            fed = {
                name: tf.constant(filled(given[name], name, length, pad_index), dtype=kinds.get(name))
                for name in facts["inputs"]
            }
            found = call(**fed)
            run.loaded = loaded  # type: ignore[attr-defined]  # a signature alone does not hold its variables
            return {name: found[name].numpy() for name in facts["outputs"]}

        return run


def _is_free(tf: Any, graph: Graph, exportable: Exportable) -> bool:
    """Return whether a graph runs on batches of every shape, although torch.export fixed some axes."""
    try:
        for batch in exportable.batches:
            graph([tf.constant(batch[name].numpy()) for name in exportable.inputs])
    except (tf.errors.OpError, ValueError):
        return False
    return True


def followed(exportable: Exportable) -> tuple[ExportedProgram, list[str]]:
    """Return the torch.export program of a network and the names of its outputs; with `ANSWERS` if the loss has them.

    Raises:
        ConfigError: torch.export cannot trace the network.
    """
    work_out_weights(exportable.network)
    if can_answer(exportable):
        wider = answering(exportable)
        try:
            return program_of(wider.network, exportable.example()), list(wider.outputs)
        except ConfigError as error:
            log.info(f"probabilities are omitted: {error}")
    return program_of(exportable.network, exportable.example()), list(exportable.outputs)


def filled(given: NDArray[Any], name: str, length: int | None, pad_index: int) -> NDArray[Any]:
    """Return token inputs (B, T) padded to a fixed length (B, length); inputs of other ranks unchanged."""
    import numpy as np

    if length is None or given.ndim != 2:
        return given
    value = pad_index if name.endswith("ids") and "type" not in name or name.startswith("tokens") else 0
    return np.pad(given, [(0, 0), (0, length - given.shape[1])], constant_values=value)


def _type(tf: ModuleType, given: Any) -> Any:
    return tf.as_dtype(given.numpy().dtype)
