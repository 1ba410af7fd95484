"""The base class of inputs: batches by `get_next`, and a position that can be saved and restored."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal
from xdpx.config.hparams import BaseHParams, Configurable
from xdpx.datasets.inputs.rows import pad_rows, unlike_rows
from xdpx.datasets.inputs.states import copied
from xdpx.datasets.inputs.windows import EvalWindow, is_end_of_data, window_of
from xdpx.utils.nested_map import NestedMap

State = dict[str, Any]
"""The position of an input: a small dict of plain JSON values."""

Problem = tuple[str, str, str]
"""(field, problem, remedy)."""

_NAME = re.compile(r"[\w.:+-]+")


class ArraySpec(NamedTuple):
    """Shape and type of one array of a batch; the first dimension is the rows of this host."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class BaseInput(Configurable):
    """A finite or infinite sequence of batches, one independent input per host.

    A subclass overrides `get_next`, which returns a NestedMap of arrays with the batch as first dimension, and raises
    StopIteration at the end. `get_state` returns the position. Unless a subclass overrides `set_state`, a position is
    restored by `reset` and repeated `get_next`, which jobs log (`replay`).
    """

    class HParams(BaseHParams):
        """Fields of every input.

        Attributes:
            name: of the input, in logs and file names; by default 'train' for training, else 'input'.
            batch_size: rows per host; None if the data decide.
            num_infeed_hosts: number of inputs that share the data; 0: set by the runner.
            infeed_host_index: index of this one among them, from 0.
            input_random_seed: of the order of the data. Must be the same on all hosts.
            is_training: whether it is for training.
            eval_window: the data of one evaluation: 'full_epoch', 'first(n)' or 'rolling(n)'.
            reset_for_eval: for compatibility with Pax, see `windows`; better omitted.
            eval_loop_num_batches: for compatibility with Pax, see `windows`; better omitted.
            batch_padding_size: number of rows without weight added to each batch, so that devices can share it equally.
            input_checkpointing_enabled: whether checkpoints contain the position in the data.
            prefetch: number of batches that a thread makes ahead; 0: none.
        """

        name: str | None = None
        batch_size: int | None = None
        num_infeed_hosts: int = 0
        infeed_host_index: int = 0
        input_random_seed: int | None = None
        is_training: bool = False
        eval_window: str | None = None
        reset_for_eval: bool = False
        eval_loop_num_batches: int | None = 1
        batch_padding_size: int = 0
        input_checkpointing_enabled: bool = True
        prefetch: int = 0

    _batches_given: int = 0
    _inside: bool = False
    _peeked: NestedMap | None = None
    _state_at_peek: State | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, wrap in _WRAPS.items():
            if name in cls.__dict__:
                setattr(cls, name, wrap(cls.__dict__[name]))

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        check_fields(hparams)
        if not hparams.is_training:
            window_of(hparams)

    # ---- batches

    def get_next(self) -> NestedMap:
        """Return this host's rows of the next batch, in new arrays or in those of earlier batches, filled again.

        Raises:
            StopIteration: at the end of the data.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define its batches: override get_next.")

    def reset(self) -> None:
        """Start again from the first batch. Called on training data only by `set_state`."""

    def get_next_padded(self) -> NestedMap:
        """Return the next batch, followed by `batch_padding_size` rows without weight."""
        batch = self.get_next()
        return pad_rows(batch, self.hparams.batch_padding_size)

    def peek_padded(self) -> NestedMap | None:
        """Return the next padded batch without consuming it; None at the end of the data.

        A peek changes neither the state nor the next batch.
        """
        if self._peeked is None:
            count, state = self._batches_given, self.get_state()
            try:
                batch = self.get_next()
            except StopIteration:
                return None
            self._peeked, self._state_at_peek, self._batches_given = batch, state, count
        return pad_rows(self._peeked, self.hparams.batch_padding_size)

    # ---- position

    def get_state(self) -> State:
        """Return the position of the input."""
        return {"batches": self._batches_given}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the position of a state. Raises ValueError if the state or the data do not fit."""
        if "batches" not in state and type(self).get_state is not BaseInput.get_state:
            kind = type(self).__name__
            raise ValueError(f"{self.name}: {kind} overrides get_state, but not set_state. Override both, or neither.")
        count = state_number(state, "batches", self)
        self.reset()
        for number in range(count):
            try:
                self.get_next()
            except StopIteration:
                raise ValueError(
                    f"{self.name}: {count} batches were read before, now there are {number}. The data changed, or "
                    f"{type(self).__name__} has no reset() to start over."
                ) from None

    @property
    def replay(self) -> str:
        """Why a position can only be restored by reading up to it; '' if it can be restored directly."""
        if type(self).set_state is not BaseInput.set_state:
            return ""
        return f"{type(self).__name__} has no set_state of its own"

    # ---- properties

    @property
    def name(self) -> str:
        """The name in logs and file names."""
        return name_of(self.hparams)

    @property
    def num_hosts(self) -> int:
        """Number of inputs that share the data; 1 if not set."""
        return self.hparams.num_infeed_hosts or 1

    @property
    def host_index(self) -> int:
        """Index of this input among them, from 0."""
        return int(self.hparams.infeed_host_index)

    @property
    def global_batch_size(self) -> int:
        """Number of rows of a batch over all hosts."""
        return int(self.hparams.batch_size * self.num_hosts)

    @property
    def window(self) -> EvalWindow:
        """The data of one evaluation. Raises ConfigError if it is ambiguous."""
        return window_of(self.hparams)

    def spec(self) -> NestedMap:
        """Return an ArraySpec for every array of a padded batch; by default, from a peek at the next one.

        Raises:
            ConfigError: there is no batch, it holds something else than arrays of numbers, or their rows differ.
        """
        batch = self.peek_padded()
        if batch is None:
            raise refused(self.hparams, "get_next", "has no batches.", "Check what it reads.")
        refuse_all(self.hparams, _without_numbers(batch))
        refuse_all(self.hparams, unlike_rows(dict(batch.FlattenItems())))
        return batch.Transform(lambda array: ArraySpec(np.shape(array), array.dtype))

    def ids_to_strings(
        self, ids: NDArray[Any], lengths: NDArray[Any] | None = None, key: str | None = None
    ) -> list[str]:
        """Return token ids as texts, one per row.

        Args:
            ids: integers, shape (B, T).
            lengths: number of ids of each row to use, shape (B,); None for all.
            key: the feature that they belong to, if features have different tokenizers.
        """
        del key
        ids = np.asarray(ids)
        lengths = np.full(len(ids), ids.shape[1]) if lengths is None else np.asarray(lengths)
        return [" ".join(map(str, row[:length])) for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)]

    def tokenizer_digest(self, key: str | None = None) -> str | None:
        """Return a digest that is equal for inputs whose ids mean the same; None if there is no tokenizer."""
        del key
        return None

    def close(self) -> None:
        """Release files and threads."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> NestedMap:
        return self.get_next()


def with_hosts(hparams: BaseHParams, index: int, count: int) -> Any:
    """Return a copy of an input's HParams with the fields of hosts filled in, unless they are set.

    Args:
        hparams: `BaseInput.HParams` of any kind; those inside a `MultiInput` are filled in, too.
        index: of this process, from 0.
        count: number of processes.
    """
    filled = hparams.clone()
    if not filled.num_infeed_hosts:
        filled.set(num_infeed_hosts=count, infeed_host_index=index)
    children = getattr(filled, "inputs", None)
    if isinstance(children, dict):
        filled.set(inputs={name: with_hosts(child, index, count) for name, child in children.items()})
    return filled


def name_of(hparams: BaseHParams) -> str:
    """Return the name of an input from its HParams."""
    return hparams.name or ("train" if hparams.is_training else "input")


def refused(hparams: BaseHParams, key: str, problem: str, remedy: str) -> ConfigError:
    """Return the error for one field of an input."""
    return refusal(f"{name_of(hparams)}.{key}", problem, remedy)


def check_fields(hparams: BaseHParams) -> None:
    """Check the fields that all inputs have.

    Raises:
        ConfigError: with all invalid fields.
    """
    refuse_all(hparams, _problems(hparams))


def refuse_all(hparams: BaseHParams, problems: Iterable[Problem]) -> None:
    """Raise one ConfigError for all problems of an input, if there are any."""
    name = name_of(hparams)
    faults = [Fault(f"{name}.{key}", problem, remedy) for key, problem, remedy in problems]
    if faults:
        raise ConfigError(THIS_RUN, faults)


def _problems(hparams: BaseHParams) -> list[Problem]:
    faults = []
    if not _NAME.fullmatch(name_of(hparams)):
        faults.append(("name", f"is '{hparams.name}'.", "Use letters, digits and . : _ + - only: files get this name."))
    if hparams.batch_size is not None and hparams.batch_size < 1:
        faults.append(("batch_size", f"is {hparams.batch_size}.", "Give the rows per host, at least 1."))
    hosts, index = hparams.num_infeed_hosts, hparams.infeed_host_index
    if hosts < 0 or not 0 <= index < max(hosts, 1):
        problem = f"is {index} of num_infeed_hosts={hosts}."
        faults.append(("infeed_host_index", problem, f"It counts from 0 to {max(hosts, 1) - 1}."))
    for key in ("batch_padding_size", "prefetch"):
        if getattr(hparams, key) < 0:
            faults.append((key, f"is {getattr(hparams, key)}.", "Give 0 or more."))
    return faults


def _without_numbers(batch: NestedMap) -> Iterator[Problem]:
    """Yield what in a batch cannot be put on a device; a list, which has a leaf per element, only once."""
    told = set()
    for path, leaf in batch.FlattenItems():
        name, dtype = path.partition("[")[0], getattr(leaf, "dtype", None)
        kind = getattr(dtype, "kind", None)  # None for what is no array, and for tensors of other libraries
        if name in told or (kind is not None and kind not in "OSUMm"):
            continue
        told.add(name)
        what = f"a {type(leaf).__name__}" if kind is None else f"an array of {dtype}"
        in_list = " in a list" if name != path else ""
        yield name, f"is {what}{in_list}.", "Give arrays of numbers (numpy.asarray); batches cannot contain texts."


def state_number(state: Mapping[str, Any], key: str, owner: BaseInput) -> int:
    """Return a count from a state. Raises ValueError if it is missing or not a count."""
    value = state.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(
            f"{owner.name}: the state has {key}={value!r}; it holds {', '.join(state) or 'nothing'}. It does not "
            f"belong to a {type(owner).__name__}: restore the checkpoint with the input it was saved with."
        )
    return value


def _counted(get_next: Callable[[Any], NestedMap]) -> Callable[[Any], NestedMap]:
    """Wrap `get_next` to return a peeked batch first, and to count batches.

    Only the outermost call counts, so that an override that calls `super()` counts one batch, not two.
    """

    @functools.wraps(get_next)
    def counting(self: Any) -> NestedMap:
        if self._inside:
            return get_next(self)
        batch: Any = self._peeked
        self._peeked = None
        if batch is None:
            self._inside = True
            try:
                batch = get_next(self)
            except Exception as error:
                if is_end_of_data(error) and not isinstance(error, StopIteration):
                    raise StopIteration from error  # TensorFlow has an error of its own
                raise
            finally:
                self._inside = False
        if not isinstance(batch, Mapping):
            remedy = "Return a NestedMap of arrays, or raise StopIteration at the end of the data."
            raise refused(self.hparams, "get_next", f"gave {batch!r:.80}, which is not a batch.", remedy)
        self._batches_given += 1
        return batch if isinstance(batch, NestedMap) else NestedMap.FromNestedDict(batch)

    return counting


def _before_peek(get_state: Callable[[Any], State]) -> Callable[[Any], State]:
    """Wrap `get_state` to return the state before a peeked batch, and a copy: the input goes on before it is saved."""

    @functools.wraps(get_state)
    def honest(self: Any) -> State:
        state: State = copied(get_state(self) if self._peeked is None else self._state_at_peek)
        return state

    return honest


def _forgetting(move: Callable[..., None]) -> Callable[..., None]:
    """Wrap `set_state` to discard a peeked batch."""

    @functools.wraps(move)
    def forgetting(self: Any, *args: Any, **kwargs: Any) -> None:
        self._peeked = None
        move(self, *args, **kwargs)

    return forgetting


def _restarting(reset: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap `reset` to discard a peeked batch and reset the count, also if an override does not call `super()`."""

    @functools.wraps(reset)
    def restarting(self: Any) -> None:
        self._peeked, self._batches_given = None, 0
        reset(self)

    return restarting


_WRAPS: dict[str, Callable[[Any], Any]] = {
    "get_next": _counted,
    "get_state": _before_peek,
    "set_state": _forgetting,
    "reset": _restarting,
}
for _name, _wrap in _WRAPS.items():
    setattr(BaseInput, _name, _wrap(BaseInput.__dict__[_name]))
