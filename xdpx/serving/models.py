"""The served models, by name; a better checkpoint of a run, or a new export in its folder, is loaded and takes over."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from xdpx.checkpoints import layout
from xdpx.checkpoints.aliases import BEST, resolve
from xdpx.config.faults import first_few
from xdpx.config.spmd_keys import SPMD
from xdpx.inference import export_folder
from xdpx.inference.answers import Prediction
from xdpx.inference.session import TrainedRun
from xdpx.logger import log
from xdpx.serving.batching import Batcher, Closed, PredictionRequest, Sizes, Text
from xdpx.serving.counting import Counts
from xdpx.serving.shapes import ModelFacts
from xdpx.utils import commit, io
from xdpx.utils.verified import RESOURCES

MOST_COPIES = 2
"""Batches that a CPU computes in parallel, each with half of the cores: threads of one batch wait for each other
after every layer, which costs most where the machine has other work, too."""
LOOKS = 2.0
"""Seconds between two checks for new weights."""
LOOKS_UNTIL_GONE = 2
"""Checks in a row without any weights in the folder, after which a warning is logged."""
SHOWN_NAMES = 5
MOST_WAIT = 300.0
"""Seconds after which weights that could not be opened are tried again, at the latest: the network may be back."""


Mark = tuple[str, int | None, str]
"""What changes with the weights in a folder: path, size and tag of the best checkpoint, or what a manifest lists."""


class Open(Protocol):
    """Opens a folder: `load_run`."""

    def __call__(self, save_dir: str, *, threads: int | None) -> TrainedRun:
        """Return the opened model; an export uses `threads` CPU threads per batch, None for all."""
        ...


class _Failed(NamedTuple):
    """Weights that could not be opened, and when they are tried again: `wait` seconds later."""

    mark: Mark
    wait: float
    again_at: float


class Model:
    """A served model, which answers in its own threads.

    Args:
        name: in requests.
        folder: of the run, or of an export.
        open_run: opens a folder.
        sizes: limits on its batches.
        counts: the Prometheus counters.
        cores: shared by its threads.
    """

    def __init__(self, name: str, folder: str, open_run: Open, sizes: Sizes, counts: Counts, *, cores: int) -> None:
        self.name, self.folder = name, folder
        self._open, self._sizes, self._counts, self._cores = open_run, sizes, counts, cores
        self._mark = _mark(folder)
        self._failed: _Failed | None = None
        self._num_blind = 0
        self._run, self._batcher = self._started()

    @property
    def facts(self) -> ModelFacts:
        """The facts that the API reports about the model."""
        run = self._run
        return ModelFacts(name=self.name, texts=list(run.text_fields), labels=run.labels, checkpoint=run.checkpoint)

    @property
    def gives_lists(self) -> bool:
        """Whether a row may have several labels, or has a tag for each word."""
        return self._run.gives_lists

    @property
    def num_waiting(self) -> int:
        """Rows that have no answer yet."""
        return self._batcher.num_waiting

    async def predict(self, texts: Sequence[Text]) -> list[Prediction]:
        """Return an answer for each row.

        Raises:
            Full: too many rows wait.
            ConfigError: a row is not text that the model reads.
        """
        if not texts:
            return []
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[PredictionRequest] = loop.create_future()

        def deliver(request: PredictionRequest) -> None:
            loop.call_soon_threadsafe(_set, answered, request)

        for _ in range(2):
            try:
                self._batcher.ask(texts, deliver)
                break
            except Closed:  # other weights took over in this very moment
                continue
        else:
            raise Closed
        request = await answered
        if request.error is not None:
            raise request.error
        return [each for each in request.answers if each is not None]

    def refresh(self) -> bool:
        """Load a better checkpoint of the run, or the export that replaced this one, and return whether there was any.

        No request is lost. What cannot be opened is logged once and retried later; the current model goes on answering.
        """
        mark = _mark(self.folder)
        self._tell_if_gone(mark)
        if mark is None or mark == self._mark:
            return False
        failed = self._failed if self._failed is not None and self._failed.mark == mark else None
        if failed is not None and time.monotonic() < failed.again_at:
            return False
        before, known = self._batcher, self.facts
        try:
            self._run, self._batcher = self._started()
        except Exception as error:  # whatever it is, those who ask are answered as before
            self._counts.loads.labels(self.name, "failed").inc()
            if failed is None:
                log.warning(
                    f"{self.name}: the newest weights cannot be opened, so the previous ones are still used: {error}"
                )
            wait = LOOKS if failed is None else min(2 * failed.wait, MOST_WAIT)
            self._failed = _Failed(mark, wait, again_at=time.monotonic() + wait)
            return False
        self._mark, self._failed = mark, None
        log.info(f"{self.name}: answers with {self._run.checkpoint}")
        self._tell_if_other(known)
        before.close()
        return True

    def _tell_if_other(self, before: ModelFacts) -> None:
        """Warn if clients get other labels, or must send other texts, than before."""
        now = self.facts
        for what, old, new in (("labels", before.labels, now.labels), ("texts", before.texts, now.texts)):
            if old != new:
                lists = [first_few(each or ["none"], SHOWN_NAMES) for each in (new, old)]
                log.warning(f"{self.name}: its {what} are now {lists[0]}; they were {lists[1]}")

    def _tell_if_gone(self, mark: Mark | None) -> None:
        """Warn at the second check in a row without weights: at one check, they may just be being replaced."""
        self._num_blind = self._num_blind + 1 if mark is None else 0
        if self._num_blind == LOOKS_UNTIL_GONE:
            log.warning(
                f"{self.name}: no weights are found in {self.folder} any more, so the previous ones are still used"
            )

    def close(self) -> None:
        """Answer the requests received so far, then end the threads."""
        self._batcher.close()

    def _started(self) -> tuple[TrainedRun, Batcher]:
        copies = min(self._sizes.threads or MOST_COPIES, self._cores)
        # One alone computes with as many threads as x-pred does: what is exact depends on it.
        threads = max(1, self._cores // copies) if copies > 1 else None
        run = self._open(self.folder, threads=threads)
        if self._sizes.threads is None and not _is_on_cpu(run):
            copies, threads = 1, None
        runs = [run, *(self._open(self.folder, threads=threads) for _ in range(copies - 1))]
        for each in runs:  # warm-up: what is built at the first row is built before a client waits
            each.answer(each.encode([_example(each)]))
        batcher = Batcher(
            runs,
            self._sizes,
            started=partial(_use_threads, threads),
            computed=partial(self._counts.batch, self.name),
        )
        self._counts.loads.labels(self.name, "done").inc()
        return run, batcher


class Models:
    """All models of a server.

    Args:
        folders: folder of each model, by name; the first model answers requests without a name.
        make: opens one of them.
    """

    def __init__(self, folders: Mapping[str, str], make: Callable[[str, str], Model]) -> None:
        self._models = {name: make(name, folder) for name, folder in folders.items()}
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="serve-watch", daemon=True)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def get(self, name: str | None) -> Model | None:
        """Return the model of a name, for None the first one; None if there is no model of that name."""
        return next(iter(self._models.values())) if name is None else self._models.get(name)

    def watch(self) -> None:
        """Start to check for new weights, in a thread."""
        self._watching.start()

    def close(self) -> None:
        """Answer the requests received so far, then end the threads."""
        self._ended.set()
        if self._watching.is_alive():
            self._watching.join()
        for each in self:
            each.close()

    def _watch(self) -> None:
        while not self._ended.wait(LOOKS):
            for each in self:
                each.refresh()


def _mark(folder: str) -> Mark | None:
    """Return a value that changes when a folder has other weights; None while none are visible."""
    try:
        if export_folder.is_export(folder):
            manifest = commit.read_manifest(folder, export_folder.SET)
            return (folder, None, str(manifest.files)) if manifest is not None else None
        path = resolve(BEST, folder)
        names = (io.name(path).removesuffix(layout.WEIGHTS), RESOURCES)  # tokens and labels may be copied after weights
        manifests = [commit.read_manifest(io.parent(path), name) for name in names]
        if manifests[0] is not None:
            return (path, None, str([each.files for each in manifests if each is not None]))
        entry = io.store(path).entry(path)
    except OSError:
        return None
    return (path, entry.size, str(entry.tag)) if entry else None


def _example(run: TrainedRun) -> Text:
    return "a" if len(run.text_fields) == 1 else ["a"] * len(run.text_fields)


def _is_on_cpu(run: TrainedRun) -> bool:
    """Return whether a run is computed on the CPU, but not by JAX, which distributes a batch over the cores itself."""
    if run.config.get("engine") == SPMD:
        return False
    if "torch" not in sys.modules:
        return True
    import torch

    return not torch.cuda.is_available()


def _use_threads(count: int | None) -> None:
    """Limit torch, if it is loaded, to `count` threads; each computing thread must call this for itself."""
    if count is not None and "torch" in sys.modules:
        import torch

        torch.set_num_threads(count)


def _set(answered: asyncio.Future[PredictionRequest], request: PredictionRequest) -> None:
    if not answered.done():  # the client may have disconnected
        answered.set_result(request)
