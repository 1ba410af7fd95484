"""Decide whether to stop training early, from the metrics of an evaluation or a decoding."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isroutine, signature
from typing import Any, Literal

import numpy as np

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, Configurable, build
from xdpx.logger import log

Mode = Literal["train", "eval", "decode"]


class EarlyStopping(Configurable):
    """Decides after evaluations and decodings whether to stop. A function with the same parameters can replace it."""

    class HParams(BaseHParams):
        """There are no fields."""

    def __call__(
        self, metrics: Mapping[str, float], mode: Mode, step: int, is_last_checkpoint: bool, path: str
    ) -> bool:
        """Return whether to stop.

        Args:
            metrics: by `<program>/<name>`, e.g. `eval_test_c4/log_pplx`.
            mode: what was just done: training, evaluating or decoding.
            step: updates taken.
            is_last_checkpoint: whether no other will follow.
            path: folder of the checkpoint, or during training that of the run.
        """
        raise NotImplementedError


def build_stopping(given: object, where: str) -> Any:
    """Return the stopping function built from a template or given as a function; None for None.

    Raises:
        ConfigError: it does not take the parameters of `EarlyStopping.__call__`.
    """
    built: Any = build(given)
    if built is None:
        return None
    remedy = "Give a function of (metrics, mode, step, is_last_checkpoint, path), or the template of an EarlyStopping."
    if isinstance(built, type) or not callable(built):
        what = f"the class {built.__name__}" if isinstance(built, type) else f"{built!r:.60}"
        raise refusal(where, f"is {what}.", remedy)
    try:
        # A class may give its instances the signature of its constructor.
        signature(built if isroutine(built) else built.__call__).bind({}, "eval", 0, False, "")
    except TypeError as error:
        raise refusal(where, f"cannot be called: {error}.", remedy) from error
    except ValueError:  # written in C: its parameters are unknown
        pass
    return built


def is_enough(ask: Any, metrics: Mapping[str, float], mode: Mode, step: int, *, last: bool, path: str) -> bool:
    """Return whether an early_stopping_fn says to stop. Raises ConfigError if its answer is neither yes nor no."""
    answer = ask(metrics, mode, step, last, path)
    if isinstance(answer, str) or np.ndim(answer):
        raise refusal("early_stopping_fn", f"returns {answer!r:.60}.", "Return True to stop, else False.")
    return bool(answer)


class TargetReached(EarlyStopping):
    """Stops when a metric of any evaluation has reached a target."""

    class HParams(EarlyStopping.HParams):
        """Fields of the target.

        Attributes:
            metric: its name, e.g. `log_pplx`, or `<program>/<name>` for that of one input.
            target: value at which training stops.
            higher_is_better: stop at `target` or above; False: at `target` or below.
        """

        metric: str = "log_pplx"
        target: float
        higher_is_better: bool = False

    def __call__(
        self, metrics: Mapping[str, float], mode: Mode, step: int, is_last_checkpoint: bool, path: str
    ) -> bool:
        """Return whether the metric has reached the target; never after mere training."""
        del step, is_last_checkpoint, path
        wanted = self.hparams
        found = [value for name, value in metrics.items() if self._is_meant(name)]
        if mode == "train":
            return False
        if mode == "eval" and metrics and not found:
            problem = f"'{wanted.metric}' is measured on no evaluation input, so it stops nothing"
            log.warning(f"TargetReached.metric: {problem}. There are: {', '.join(metrics)}.", once=True)
        return any(value >= wanted.target if wanted.higher_is_better else value <= wanted.target for value in found)

    def _is_meant(self, name: str) -> bool:
        program, _, last = name.rpartition("/")
        return name == self.hparams.metric or (last == self.hparams.metric and program != "eval_train")
