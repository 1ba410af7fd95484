"""An engine that only scores, with the network file of an export folder; nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from xdpx.config.faults import ConfigError
from xdpx.inference import export_folder
from xdpx.inference.formats import Network, format_named
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.config.loading import Run
    from xdpx.engines.base import Batch, Predictions


@dataclass
class Opened:
    """The state of an `ExportedEngine`.

    Attributes:
        task: turns the outputs of the network into predictions.
    """

    task: Any


class ExportedEngine:
    """The scoring part of `engines.base.Engine`, run with the network of an export folder.

    Args:
        run: the training run, for its task and loss.
        folder: any path.
        threads: CPU threads for one batch; None for the default of the format.
        exact: make the outputs of a row bit-identical whatever rows are in its batch.

    Attributes:
        one_by_one: whether rows must be scored in batches of one: the outputs of a row depend on the others in its
            batch, or `exact` is set and it cannot be checked which batch sizes give the same bits.

    Raises:
        OSError: a file of the export is damaged.
        ConfigError: a package is missing, the table of contents is invalid, or only the encoder was exported.
    """

    def __init__(self, run: Run, folder: str, *, threads: int | None = None, exact: bool = False) -> None:
        from xdpx.engines.pytorch.exact import ExactRows

        self._run = run
        self._facts = export_folder.read(folder)
        keeps_apart = format_named(str(self._facts["format"])).keeps_rows_apart(self._facts["of_format"])
        # With one number per row, as in a regression, rounding may hide differences inside, so no check is possible.
        self.one_by_one = not keeps_apart or (exact and not self._facts["labels"])
        self.exact = ExactRows() if exact and not self.one_by_one else None
        export_folder.refuse_damaged(folder)
        self._place = _Local(folder)  # kept alive as long as the network
        self._network = open_network(self._place.path, self._facts, threads=threads, source=folder)

    @property
    def device_text(self) -> str:
        """What computes, for log lines: the format, on the CPU."""
        return f"{self._facts['format']} on the CPU"

    def start(self, seed: int) -> Opened:
        """Return the only state there is; the seed is ignored."""
        del seed
        from xdpx.models.pytorch.positional import FromFile
        from xdpx.tasks.default import Task

        names, form = [each["name"] for each in self._facts["inputs"]], self._facts["form"]
        model = FromFile(self._network, names, form)
        # The default task: other tasks only change training.
        return Opened(Task(self._run.parameters("task"), model, self._run.build("loss")))

    def score(self, state: Opened, batch: Batch) -> Predictions:
        """Return the predictions and sums for one batch."""
        import torch

        from xdpx.engines.pytorch.transfer import to_device

        exactly = nullcontext() if self.exact is None else self.exact.inside(state.task)
        with torch.no_grad(), exactly:
            found: Predictions = state.task.valid_step(to_device(batch, torch.device("cpu")))
            return found

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Return predictions on the host: numpy arrays for tensors with rows, floats for scalars."""
        from xdpx.engines.pytorch.transfer import to_arrays

        return to_arrays(predictions)


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
