"""An engine that only scores, with the network file of an export folder; nothing is unpickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from xdpx.config.faults import ConfigError
from xdpx.inference import export_folder
from xdpx.inference.answering import ANSWERS
from xdpx.inference.formats import Network, format_named
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.config.loading import Run
    from xdpx.engines.base import Batch, Predictions
    from xdpx.engines.pytorch.exact import ExactRows


class Opened:
    """The state of an `ExportedEngine`.

    Args:
        make_task: returns what turns the outputs of the network into predictions and rows.
    """

    def __init__(self, make_task: Callable[[], Any]) -> None:
        self._make_task = make_task

    @cached_property
    def task(self) -> Any:
        """The task; built when it is first needed, as it imports torch, a second and 200 MB of memory."""
        return self._make_task()


class ExportedEngine:
    """The scoring part of `engines.base.Engine`, run with the network of an export folder.

    Args:
        run: the training run, for its task and loss.
        folder: any path.
        threads: CPU threads for one batch; None for the default of the format.
        exact: make the outputs of a row bit-identical whatever rows are in its batch.
        changed: whether predictions are not those at the time of the export: parameters of the loss were overridden,
            or a temperature divides the logits. Then the loss is asked, even if the file gives predictions.

    Attributes:
        columns: names of the columns that x-pred adds; None in exports that do not say.
        answers: whether the file itself gives all predictions for rows without a label, so that no task is needed.
        one_by_one: whether rows must be scored in batches of one: the outputs of a row depend on the others in its
            batch, or `exact` is set and it cannot be checked which batch sizes give the same bits.

    Raises:
        OSError: a file of the export is damaged.
        ConfigError: a package is missing, the table of contents is invalid, or only the encoder was exported.
    """

    def __init__(
        self, run: Run, folder: str, *, threads: int | None = None, exact: bool = False, changed: bool = False
    ) -> None:
        self._run = run
        self._facts = export_folder.read(folder)
        self.columns: list[str] | None = self._facts.get("columns")
        self.answers = bool(self._facts["of_format"].get("answers")) and not (exact or changed)
        keeps_apart = format_named(str(self._facts["format"])).keeps_rows_apart(self._facts["of_format"])
        # With one number per row, as in a regression, rounding may hide differences inside, so no check is possible.
        self.one_by_one = not keeps_apart or (exact and not self._facts["labels"])
        self.exact = _exact_rows() if exact and not self.one_by_one else None
        export_folder.refuse_damaged(folder)
        self._inputs = [each["name"] for each in self._facts["inputs"]]
        self._place = _Local(folder)  # kept alive as long as the network
        self._network = open_network(self._place.path, self._facts, threads=threads, source=folder)

    @property
    def device_text(self) -> str:
        """What computes, for log lines: the format, on the CPU."""
        return f"{self._facts['format']} on the CPU"

    def start(self, seed: int) -> Opened:
        """Return the only state there is; the seed is ignored."""
        del seed
        return Opened(self._task)

    def _task(self) -> Any:
        from xdpx.models.pytorch.positional import FromFile
        from xdpx.tasks.default import Task

        model = FromFile(self._network, self._inputs, self._facts["form"])
        # The default task: other tasks only change training.
        return Task(self._run.parameters("task"), model, self._run.build("loss"))

    def score(self, state: Opened, batch: Batch) -> Predictions:
        """Return the predictions and sums for one batch."""
        if self.answers and "target" not in batch:
            return self._answered(batch)
        import torch

        from xdpx.engines.pytorch.transfer import to_device

        exactly = nullcontext() if self.exact is None else self.exact.inside(state.task)
        with torch.no_grad(), exactly:
            found: Predictions = state.task.valid_step(to_device(batch, torch.device("cpu")))
            return found

    def _answered(self, batch: Batch) -> dict[str, Any]:
        """Return the predictions of the file itself for a batch of arrays, as the loss would return them."""
        found = self._network({name: batch["net_input"][name] for name in self._inputs})
        prob, pred = (found[name] for name in ANSWERS)
        ids = {"query_id": batch["query_id"]} if "query_id" in batch else {}
        return {"prob": prob, "pred": pred if pred.ndim == 1 else pred.astype(bool), **ids}

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Return predictions on the host: numpy arrays for tensors with rows, floats for scalars."""
        if all(isinstance(each, np.ndarray) for each in predictions.values()):
            return dict(predictions)
        from xdpx.engines.pytorch.transfer import to_arrays

        return to_arrays(predictions)


def _exact_rows() -> ExactRows:
    from xdpx.engines.pytorch.exact import ExactRows

    return ExactRows()


def open_network(folder: str, facts: Mapping[str, Any], *, threads: int | None, source: str) -> Network:
    """Return a function that runs the network of a local export folder.

    Args:
        folder: local.
        facts: its table of contents.
        threads: CPU threads for one batch; None for the default of the format.
        source: the folder, for messages.

    Raises:
        ConfigError: a package is missing.
    """
    kind = format_named(str(facts["format"]))
    missing = kind.missing()
    if missing:
        raise ConfigError(source, missing)
    names = {"inputs": [each["name"] for each in facts["inputs"]], "outputs": facts["outputs"]}
    return kind.open(folder, {**facts["of_format"], **names}, threads=threads)


class _Local:
    """A local folder with the files of an export: the export itself, or a temporary copy deleted with this object."""

    def __init__(self, folder: str) -> None:
        self.path, self._copy = folder, None
        if not io.islocal(folder):
            self._copy = TemporaryDirectory(prefix="xdpx-export-")
            self.path = self._copy.name
            export_folder.copy_files(folder, self.path)
