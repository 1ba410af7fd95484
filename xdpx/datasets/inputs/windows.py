"""Evaluation windows: an evaluation or decoding uses all batches, the first n, or the next n.

| `eval_window` | calls of one run                                  | data        | fields of Pax                      |
|---------------|---------------------------------------------------|-------------|------------------------------------|
| `full_epoch`  | next until StopIteration, then reset              | finite      | reset_for_eval=True, N=None or -1  |
| `first(n)`    | next n times, then reset: the same ones each time | any         | reset_for_eval=True, N=n           |
| `rolling(n)`  | next n times, no reset: each time the ones after  | must repeat | reset_for_eval=False, N=n          |

The fourth combination, no reset and no number, would have no data after the first run, and is refused. N is
`eval_loop_num_batches`. Its default is 1, so `reset_for_eval=True` alone is ambiguous: it means one epoch in the table
of the Pax documentation, but the programs of Pax since November 2023 evaluate one batch and decode one epoch. Such a
configuration is refused with advice; a 1 that is set explicitly means one batch.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from xdpx.config.faults import ConfigError, refusal

full_epoch = "full_epoch"
"""The window of all data, once per evaluation."""

Kind = Literal["full_epoch", "first", "rolling"]
_NUMBERED = re.compile(r"(first|rolling)\((\d+)\)")
_ALLOWED = "Write 'full_epoch', 'first(n)' or 'rolling(n)', with n from 1."


def first(n: int) -> str:
    """Return the window of the first n batches, the same at every evaluation."""
    return str(EvalWindow("first", n))


def rolling(n: int) -> str:
    """Return the window of the n batches after those of the previous evaluation."""
    return str(EvalWindow("rolling", n))


@dataclass(frozen=True)
class EvalWindow:
    """The batches of one evaluation.

    Attributes:
        kind: `full_epoch`, `first` or `rolling`.
        num_batches: n of the latter two; None for a full epoch.
    """

    kind: Kind
    num_batches: int | None = None

    def __post_init__(self) -> None:
        numbered = self.kind != "full_epoch"
        if numbered is (self.num_batches is None) or (self.num_batches is not None and self.num_batches < 1):
            raise ValueError(f"{self.kind}({self.num_batches}) is not an eval window. {_ALLOWED}")

    @property
    def resets(self) -> bool:
        """Whether the input is reset after each evaluation."""
        return self.kind != "rolling"

    def __str__(self) -> str:
        return self.kind if self.num_batches is None else f"{self.kind}({self.num_batches})"


def parse_window(text: str) -> EvalWindow:
    """Return the window for `full_epoch`, `first(3)` or `rolling(3)`. Raises ValueError for other texts."""
    plain = text.replace(" ", "")
    if plain == full_epoch:
        return EvalWindow("full_epoch")
    found = _NUMBERED.fullmatch(plain)
    if found is None:
        raise ValueError(f"'{text}' is not an eval window. {_ALLOWED}")
    return EvalWindow("first" if found.group(1) == "first" else "rolling", int(found.group(2)))


class WindowFields(Protocol):
    """The fields of an input's HParams that determine the window."""

    name: Any
    eval_window: Any
    reset_for_eval: Any
    eval_loop_num_batches: Any

    def given(self) -> frozenset[str]:
        """Return the names of the fields that were set."""


def window_of(hparams: WindowFields) -> EvalWindow:
    """Return the evaluation window, from `eval_window`, or from the fields of Pax if it is not given.

    Raises:
        ConfigError: it is invalid or ambiguous, or both contradict each other.
    """
    if hparams.eval_window is None:
        return _from_pax(hparams)
    try:
        window = parse_window(hparams.eval_window)
    except ValueError as error:
        raise _refused(hparams, "eval_window", str(error), "") from error
    _refuse_contradiction(hparams, window)
    return window


def _from_pax(hparams: WindowFields) -> EvalWindow:
    count = hparams.eval_loop_num_batches
    dynamic = count is None or count == -1
    if not dynamic and count < 1:
        problem = f"is {count}; an evaluation sees at least one batch."
        raise _refused(hparams, "eval_loop_num_batches", problem, "Write eval_window='full_epoch' for all data.")
    if not hparams.reset_for_eval:
        if dynamic:
            problem = "is False and eval_loop_num_batches None: only the first evaluation would see any data."
            remedy = "Write eval_window='full_epoch' for all data every time, or eval_window='rolling(n)'."
            raise _refused(hparams, "reset_for_eval", problem, remedy)
        return EvalWindow("rolling", count)
    if dynamic:
        return EvalWindow("full_epoch")
    if count == 1 and "eval_loop_num_batches" not in hparams.given():
        problem = (
            "is True while eval_loop_num_batches has its default, 1. The Pax document takes this to mean one epoch; "
            "its programs evaluate one batch and decode one epoch."
        )
        remedy = "Write eval_window='full_epoch' for all data every time, or eval_window='first(1)' for one batch."
        raise _refused(hparams, "reset_for_eval", problem, remedy)
    return EvalWindow("first", count)


def _refuse_contradiction(hparams: WindowFields, window: EvalWindow) -> None:
    """Raise ConfigError if fields of Pax that are set contradict the window."""
    said = hparams.reset_for_eval or "reset_for_eval" in hparams.given()
    if said and bool(hparams.reset_for_eval) is not window.resets:
        does = "starts over every time" if window.resets else "continues where the last evaluation ended"
        problem = f"is {hparams.reset_for_eval}, but eval_window='{window}' {does}."
        raise _refused(hparams, "reset_for_eval", problem, "Leave it out: eval_window says it all.")
    count = None if hparams.eval_loop_num_batches == -1 else hparams.eval_loop_num_batches
    said = count != 1 or "eval_loop_num_batches" in hparams.given()
    if said and count != window.num_batches:
        problem = f"is {count}, but eval_window='{window}' says {window.num_batches or 'all'}."
        raise _refused(hparams, "eval_loop_num_batches", problem, "Leave it out: eval_window says it all.")


def _refused(hparams: WindowFields, key: str, problem: str, remedy: str) -> ConfigError:
    return refusal(f"{hparams.name or 'input'}.{key}", problem, remedy)


class Walkable(Protocol):
    """The parts of an input that `walk` uses."""

    def get_next_padded(self) -> Any:
        """Return the next batch."""

    def reset(self) -> None:
        """Start again from the first batch."""

    @property
    def hparams(self) -> Any:
        """The fields of the input."""


def walk(data: Walkable, window: EvalWindow | str | None = None) -> Generator[Any]:
    """Yield the batches of one evaluation or decoding; both use this loop.

    Unless the window is rolling, the input is reset at the end, even if the consumer stops early, so that the next
    evaluation uses the same batches.

    Args:
        data: an input.
        window: the batches to use; None: the window of the input's fields.

    Raises:
        ConfigError: a rolling window reached the end of the data.
    """
    if not isinstance(window, EvalWindow):
        window = window_of(data.hparams) if window is None else parse_window(window)
    taken = 0
    try:
        while window.num_batches is None or taken < window.num_batches:
            batch = next_batch(data)
            if batch is None:
                break
            taken += 1
            yield batch
    finally:
        if window.resets:
            data.reset()
    if taken < (window.num_batches or 0) and not window.resets:
        problem = (
            f"'{window}' reached the end of the data after {taken} batches. A rolling window needs repeating data."
        )
        raise refusal("eval_window", problem, "Set repeat=True, or eval_window='full_epoch'.")


def next_batch(data: Walkable) -> Any:
    """Return the next batch; None at the end of the data (StopIteration, or TensorFlow's OutOfRangeError)."""
    try:
        return data.get_next_padded()
    except StopIteration:
        return None
    except Exception as error:
        if is_end_of_data(error):
            return None
        raise


def is_end_of_data(error: BaseException) -> bool:
    """Return whether an exception means the end of the data: StopIteration, or `tf.errors.OutOfRangeError`."""
    if isinstance(error, StopIteration):
        return True
    kinds = type(error).__mro__
    return any(kind.__name__ == "OutOfRangeError" and kind.__module__.startswith("tensorflow") for kind in kinds)
