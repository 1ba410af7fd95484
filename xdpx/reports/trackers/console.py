"""What a training shows on the console: progress bars or printed lines."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

from tqdm.auto import tqdm


class Bars:
    """A progress bar over training steps, one over evaluation batches, and logged values printed above them.

    Args:
        max_str_len: a logged text longer than this is replaced by a note of its length.
    """

    def __init__(self, max_str_len: int = 100) -> None:
        self.max_str_len = max_str_len
        self.training_bar: Any = None
        self.prediction_bar: Any = None
        self.current_step = 0

    def on_train_begin(self, args: object, state: Any, control: object, **kwargs: object) -> None:
        """Start the bar, at the current step of a resumed training."""
        self._end_training_bar()
        self.current_step = state.global_step
        if state.is_world_process_zero:
            self.training_bar = tqdm(total=state.max_steps, initial=state.global_step, dynamic_ncols=True)

    def on_step_end(self, args: object, state: Any, control: object, **kwargs: object) -> None:
        """Advance the bar."""
        if self.training_bar is not None:
            self.training_bar.update(state.global_step - self.current_step)
            self.current_step = state.global_step

    def on_prediction_step(
        self, args: object, state: Any, control: object, eval_dataloader: object = None, **kwargs: object
    ) -> None:
        """Advance the bar over batches, if their number is known."""
        total = _length(eval_dataloader) if state.is_world_process_zero else None
        if total is None:
            return
        if self.prediction_bar is None:
            self.prediction_bar = tqdm(total=total, leave=self.training_bar is None, dynamic_ncols=True)
        self.prediction_bar.update(1)

    def on_evaluate(self, args: object, state: object, control: object, **kwargs: object) -> None:
        """Remove the bar over the batches."""
        self._end_prediction_bar()

    def on_predict(self, args: object, state: object, control: object, **kwargs: object) -> None:
        """Remove the bar over the batches."""
        self._end_prediction_bar()

    def on_log(
        self, args: object, state: object, control: object, logs: Mapping[str, Any] | None = None, **kwargs: object
    ) -> None:
        """Print what is logged above the bar."""
        if self.training_bar is not None and logs is not None:
            self.training_bar.write(str(shown(logs, self.max_str_len)))

    def on_train_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
        """Close the bar, leaving it on the screen."""
        self._end_training_bar()

    def _end_training_bar(self) -> None:
        if self.training_bar is not None:
            self.training_bar.close()
        self.training_bar = None

    def _end_prediction_bar(self) -> None:
        if self.prediction_bar is not None:
            self.prediction_bar.close()
        self.prediction_bar = None


class Printing:
    """Prints what is logged, on the first process of each machine."""

    def on_log(
        self, args: object, state: Any, control: object, logs: Mapping[str, Any] | None = None, **kwargs: object
    ) -> None:
        """Print a formatted copy; `logs` is not changed."""
        if state.is_local_process_zero and logs is not None:
            print(shown(logs))  # noqa: T201  # printing is its purpose


def shown(logs: Mapping[str, Any], max_str_len: int | None = None) -> dict[str, Any]:
    """Return what a console shows of `logs`: floats with four digits, no long texts, and no `total_flos`."""
    return {name: _shown(value, max_str_len) for name, value in logs.items() if name != "total_flos"}


def _shown(value: object, max_str_len: int | None) -> Any:
    if isinstance(value, float):
        return f"{value:.4g}"
    if max_str_len is not None and isinstance(value, str) and len(value) > max_str_len:
        return f"[a text of {len(value)} characters; `max_str_len` is {max_str_len}]"
    return value


def _length(loader: object) -> int | None:
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except TypeError:  # a DataLoader has a length only if its dataset has one
        return None
