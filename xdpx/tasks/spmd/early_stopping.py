"""When a run has reached what was wanted of it."""

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
    """Asked after each evaluation and decoding. A function with the parameters of `__call__` may stand in its place."""

    class HParams(BaseHParams):
        """Nothing of its own."""

    def __call__(
        self, metrics: Mapping[str, float], mode: Mode, step: int, is_last_checkpoint: bool, path: str
    ) -> bool:
        """Tell whether to stop.

        Args:
            metrics: by `<program>/<name>`, e.g. `eval_test_c4/log_pplx`.
            mode: what was just done.
            step: updates taken.
            is_last_checkpoint: whether no other will come.
            path: folder of the checkpoint, or of the run while it trains.
        """
        raise NotImplementedError


def build_stopping(given: object, where: str) -> Any:
    """Return the function that decides, from a template or a function; None for none.

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
    """Stop when a metric of any evaluation is as good as wanted."""

    class HParams(EarlyStopping.HParams):
        """Of a target.

        Attributes:
            metric: its name, e.g. `log_pplx`, or `<program>/<name>` for that of one input.
            target: how good.
            higher_is_better: which way is good.
        """

        metric: str = "log_pplx"
        target: float
        higher_is_better: bool = False

    def __call__(
        self, metrics: Mapping[str, float], mode: Mode, step: int, is_last_checkpoint: bool, path: str
    ) -> bool:
        """Compare what was just evaluated."""
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
