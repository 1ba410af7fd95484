"""Groups of batches for updates from an input, and the positions in the inputs that checkpoints store."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from math import inf
from typing import Any

from xdpx.checkpoints.spmd_folders import INPUTS, read_train_input
from xdpx.config.faults import ConfigError, Fault
from xdpx.datasets.inputs.base_input import BaseInput, refused
from xdpx.datasets.inputs.peeking import warn_about
from xdpx.datasets.inputs.refilling import Apart
from xdpx.datasets.inputs.states import from_json, to_json
from xdpx.datasets.inputs.windows import next_batch
from xdpx.datasets.plan import Position
from xdpx.engines.spmd import world
from xdpx.experiments.running.batches import batch_text, check_batch, check_content, shapes_of
from xdpx.experiments.running.parts import Parts
from xdpx.logger import log
from xdpx.training.loop import Interrupted
from xdpx.utils import io
from xdpx.utils.pulse import UNLIKE_OTHERS, pulse

TRAINING = "train"
"""The key of the training input's state; other inputs use their names."""

OUT_OF_DATA = f"{UNLIKE_OTHERS}: it has ended here, and not there"
"""The phase of a process that waits for the others at the end of its data."""

OTHER_SHAPES = f"{UNLIKE_OTHERS}: it has other shapes than before here, and not there"
"""The phase of a process whose batches change their shapes, until those of the others do, too."""

_FROM, _BATCHES = "__from__", "__batches__"
"""Keys of the position of an input that was cut off while it read: an earlier position, and the batches from there."""


class Feed:
    """The training input, grouped into batches per update. Warns once about what looks wrong with the job's inputs.

    Args:
        parts: of the run.
        others: inputs that are evaluated and decoded during training; the caller closes them. The positions of those
            whose evaluations continue where the previous one ended are stored, too.
    """

    def __init__(self, parts: Parts, others: Sequence[BaseInput] = ()) -> None:
        self.data = parts.training_input()
        self._parts = parts
        self._others = _by_key([data for data in others if not data.window.resets])
        self._begun: dict[str, Any] | None = None  # their positions before an evaluation that a signal cut short
        self._ending, self._changing = world.Talk("end of data"), world.Talk("shapes of batches")
        self._shapes: list[dict[str, list[int]]] = []  # of the batches of the previous update
        self._given = 0.0  # the update that the newest batches are for; infinite while they are read
        train = self._parts.train
        # Batches of updates that wait on the devices are in use, too: CPUs compute with the arrays themselves.
        self._apart = Apart(train.accumulate_batches + train.max_inflight_steps)
        self._known: tuple[int, Any] = 0, None  # number of an update, and the training input's position after it
        warn_about([self.data, *others])

    def groups(self, taken: int) -> Generator[tuple[Position, list[Any]]]:
        """Yield the batches of one update after another, until the data end; `taken` updates were fed before.

        An input has no epochs, so everything counts as the first epoch.
        """
        unchecked, count = self._parts.train.enforce_input_specs, self._parts.train.accumulate_batches
        if self._parts.options.enable_checkpoint_saving:
            self.state(taken)  # to be known from here on
        while True:
            self._given = inf  # also after a signal has cut the reading off
            group = [self._apart.of(batch) for batch in islice(iter(partial(next_batch, self.data), None), count)]
            if len(group) < count:
                self._given = taken
                if group:
                    left = f"{len(group)} of the {count} batches of an update (accumulate_batches)"
                    log.warning(f"{self.data.name}: the data ends with {left}: they are not trained on.")
                with pulse.doing(OUT_OF_DATA, patience=1.0, compiles=False):
                    self._ending.barrier()  # in vain if others have more data, and wait in an update: the watch ends it
                return
            if unchecked:
                check_batch(group[0], self._parts)
                unchecked = False
            for batch in group:
                check_content(batch, self._parts, self.data)
            if self._parts.ranks.size > 1:
                self._agree_on_shapes(group)
            self._given = taken = taken + 1
            yield Position(group=taken), group

    def _agree_on_shapes(self, group: Sequence[Any]) -> None:
        """Raise ConfigError, on all processes, unless batches of new shapes are alike everywhere: they would hang."""
        shapes = [shapes_of(batch) for batch in group]
        if shapes == self._shapes:
            return
        self._shapes = shapes
        with pulse.doing(OTHER_SHAPES, patience=1.0, compiles=False):
            given = self._changing.exchange(shapes)  # in vain if those of others are as before: the watch ends it
        for index, others in enumerate(given):
            for here, there in zip(given[0], others, strict=True):
                if here != there:
                    problem = f"process 0 has {batch_text(here)}, process {index} {batch_text(there)}."
                    remedy = "Give all processes batches of the same shapes in the same update."
                    raise refused(self.data.hparams, "get_next", problem, remedy)

    def state(self, taken: int) -> dict[str, Any] | None:
        """Return the positions of this process in its inputs after `taken` updates; None if none are stored.

        When a signal cut off the reading for the next update, that of the training input is not known: the result is an
        earlier one, and the number of batches that were trained on from there.
        """
        kept = self._kept()
        found = self._places_of_others() if self._begun is None else dict(self._begun)
        if TRAINING in kept:
            if self._given <= taken:
                self._known = taken, self._state_of(TRAINING, self.data)
            number, place = self._known
            batches = (taken - number) * self._parts.train.accumulate_batches
            found[TRAINING] = {_FROM: place, _BATCHES: batches} if batches else place
        return found or None

    @contextmanager
    def evaluated(self) -> Generator[None]:
        """Evaluate or decode inside; if a signal cuts that short, the positions stored are those before it."""
        before = self._places_of_others() if self._parts.options.enable_checkpoint_saving else {}
        try:
            yield
        except Interrupted:
            self._begun = before
            raise

    def _places_of_others(self) -> dict[str, Any]:
        return {name: self._state_of(name, data) for name, data in self._kept().items() if name != TRAINING}

    def _state_of(self, name: str, data: BaseInput) -> Any:
        try:
            return to_json(data.get_state())
        except TypeError as error:
            remedy = "Give numbers, texts, bytes and arrays, and lists, tuples and dicts of them."
            fault = Fault(f"{name}.get_state", f"{error}, which a checkpoint cannot store.", remedy)
            raise ConfigError(type(self._parts.experiment).__name__, [fault]) from error

    def restore(self, checkpoint: str, inputs: Mapping[str, Any] | None = None) -> None:
        """Restore the positions that the inputs had when a checkpoint was written.

        Args:
            checkpoint: its folder, or another name of the origin, for messages.
            inputs: what `state` returned then; None to read it from the checkpoint folder.
        """
        kept = self._kept()
        if TRAINING not in kept:
            of_input = self._parts.train.enable_input_checkpointing
            switch = "input_checkpointing_enabled" if of_input else "enable_input_checkpointing"
            log.warning(f"{switch} is False: the training input starts over, and may repeat data.")
        saved: Mapping[str, Any] = inputs or {}
        if inputs is None and kept:
            saved = self._read(checkpoint) or {}
        for name, data in kept.items():
            if name in saved:
                if data.replay:
                    log.info(f"{name}: {data.replay}, so it rereads everything up to its position {saved[name]}")
                self._go_to(data, saved[name], checkpoint)
            else:
                log.warning(f"{checkpoint} does not say where {data.name} was: it starts over, and may repeat data.")

    def _go_to(self, data: BaseInput, place: object, checkpoint: str) -> None:
        if isinstance(place, Mapping) and _FROM in place:
            self._go_to(data, place[_FROM], checkpoint)
            log.info(f"{data.name}: a signal interrupted reading, so it reads {place[_BATCHES]:,} batches again")
            for _ in range(place[_BATCHES]):
                next_batch(data)
            return
        try:
            data.set_state(from_json(place))
        except ConfigError:
            raise
        except ValueError as error:
            problem = f"its position in {checkpoint} does not fit: {error}"
            remedy = "With input_checkpointing_enabled=False the data start over."
            raise ConfigError(type(self._parts.experiment).__name__, [Fault(data.name, problem, remedy)]) from error

    def close(self) -> None:
        """Close the files and the thread of the training input."""
        self.data.close()

    def _kept(self) -> dict[str, BaseInput]:
        """Return the inputs whose positions checkpoints store, by key."""
        if not self._parts.train.enable_input_checkpointing:
            return {}
        inputs = {TRAINING: self.data, **self._others}
        return {name: data for name, data in inputs.items() if data.hparams.input_checkpointing_enabled}

    def _read(self, checkpoint: str) -> Mapping[str, Any] | None:
        ranks = self._parts.ranks
        try:
            found: Mapping[str, Any] | None = read_train_input(checkpoint, ranks.rank, ranks.size)
        except ValueError:
            # The number of processes has changed. Positions count over all hosts, so that of any process will do.
            name = sorted(io.listdir(io.join(checkpoint, INPUTS)))[0]
            index, count = (int(number) for number in name.removeprefix("process_").split("-of-"))
            log.info(
                f"{checkpoint} was written by {count} processes; {ranks.size} continue from its position in the data"
            )
            found = read_train_input(checkpoint, index, count)
        return found


def _by_key(inputs: Sequence[BaseInput]) -> dict[str, BaseInput]:
    """Return inputs by the keys of their positions: their names, and others where one is taken already.

    An input that is evaluated may have the name of one that is decoded, or the key of the training input.
    """
    found: dict[str, BaseInput] = {}
    for data in inputs:
        key = data.name
        while key == TRAINING or key in found:
            key += "_"
        found[key] = data
    return found
