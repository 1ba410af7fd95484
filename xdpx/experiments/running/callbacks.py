"""Callbacks of experiments, in addition to the logging and plotting callbacks shared with `x-train`."""

from __future__ import annotations

import gc
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import nlargest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xdpx.checkpoints.folders import Ranks
from xdpx.engines import rounding
from xdpx.engines.spmd import world
from xdpx.engines.spmd.peaks import Efficiency
from xdpx.experiments.running import summaries as tags
from xdpx.experiments.running.feeding import Feed
from xdpx.experiments.running.job_folder import SUMMARIES
from xdpx.experiments.running.parts import Parts
from xdpx.experiments.running.programs import DecodeProgram, EvalProgram, Program, measured
from xdpx.logger import log
from xdpx.optimizers.spmd.trees import named
from xdpx.reports.growing_table import Cell, GrowingTable
from xdpx.reports.windows import Window
from xdpx.tasks.spmd.early_stopping import Mode, is_enough
from xdpx.tasks.spmd.metrics import Totals, final_of
from xdpx.training.accumulation import Diverged, MetricAccumulator
from xdpx.training.callbacks.evaluating import Scoring
from xdpx.training.callbacks.logging import Logging
from xdpx.training.loop import Callback, Interrupted, Session, Step, Stop
from xdpx.utils import io
from xdpx.utils.decisions import SKIPPED_AT_MOST, due

SUMMARY = "summary"
"""The name of the accumulator window for summaries."""

HALF = frozenset({jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16)})

STILL_UPDATES = 3
"""Consecutive updates with the gradient 0 that are told of: of one, the data may be the reason."""

SCORES = ("log_pplx", "total_loss")
"""The first of these metrics that is measured decides which evaluation is best; lower is better."""


class SkippingAccumulator(MetricAccumulator):
    """Counts the updates that the learner skips because the gradient is too large or not finite; too many end training.

    Args:
        most: number of consecutive skipped updates that ends the training as a failure.
        hear: called with the number of each update that was skipped because its gradient is NaN or infinite.
    """

    def __init__(
        self, *values: Any, most: int = SKIPPED_AT_MOST, hear: Callable[[int], object] = lambda number: None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(*values, **options)
        self._most, self._hear = most, hear
        self._in_a_row = self._without_gradient = 0

    def _enter(self, number: int, facts: dict[str, float]) -> None:
        self._warn_of_no_gradient(number, facts)
        self._in_a_row = self._in_a_row + 1 if facts.get("skipped") else 0
        if self._in_a_row >= self._most:
            raise Diverged(
                f"nothing is being learned: the last {self._in_a_row} updates, up to step {number}, were all skipped, "
                "because the gradient was not finite, or its norm "
                "above skip_step_gradient_norm_value. The weights are those "
                f"of step {number - self._in_a_row}. Check data and loss of that step, or lower the learning rate.",
                number,
            )
        if facts.get("skipped"):
            if not math.isfinite(facts.get("grad_norm", 0.0)):
                self._hear(number)
            known = ("skipped", "num_tokens", "learning_rate", "is_valid_step")
            log.warning(f"step {number} was skipped: the gradient is NaN or infinite, or its norm too large")
            facts = {name: facts[name] for name in known if name in facts}
        elif facts.get("count") == 0:
            log.warning(
                "an update has no rows that count, as all weights of its batches are 0: its loss is NaN", once=True
            )
        super()._enter(number, facts)

    def _warn_of_no_gradient(self, number: int, facts: Mapping[str, float]) -> None:
        still = facts.get("grad_norm") == 0 and facts.get("count", 1) > 0
        self._without_gradient = self._without_gradient + 1 if still else 0
        if self._without_gradient == STILL_UPDATES:
            log.warning(
                f"the gradient was exactly 0 in {STILL_UPDATES} updates in a row, up to step {number}: no weight "
                "learns from them. Does the loss depend on trained weights? stop_gradient, argmax, comparisons and "
                "integers have no gradient; bprop_variable_exclusion and bprop_variable_inclusion freeze weights.",
                once=True,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the windows and the number of consecutive skipped updates."""
        return {**super().state_dict(), "skipped_in_a_row": self._in_a_row}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(saved)
        self._in_a_row = int(saved.get("skipped_in_a_row", 0))


class Rounding(Callback):
    """Warns if 16 bits lose gradients, or rounding undoes updates; some of what this process holds is compared.

    It is compared on the host, since each shape would need a program on the devices.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._names: list[str] = []
        self._before: list[Any] = []
        self._end = 0

    def on_start(self, session: Session) -> None:
        """Choose the largest of the trained weights, and keep some of their numbers."""
        computed_in = getattr(self._parts.task.model, "compute_dtype", None)
        if computed_in is not None and jnp.dtype(computed_in) == jnp.float16:
            log.warning(
                "fprop_dtype: is float16, and there is no loss scale: gradients below 6e-8 become 0, the more of them "
                "the more tokens an update has. Use bfloat16.",
                once=True,
            )
        weights = named(session.state["params"])
        trained = self._parts.task.learner.trained(weights)
        half = sorted(name for name in trained if weights[name].dtype in HALF and weights[name].size)
        self._names = nlargest(rounding.WEIGHTS, half, key=lambda name: weights[name].size)
        self._before, self._end = self._numbers(session.state), session.number + rounding.UPDATES

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Compare them after `rounding.UPDATES` updates."""
        if step.number != self._end or not self._before:
            return None
        facts, now = self._parts.engine.facts_to_host(step.facts), self._numbers(step.state)
        said = rounding.said_of(
            [float((one == other).mean()) for one, other in zip(self._before, now, strict=True)],
            rates=f"a learning rate that is {facts['learning_rate']:.3g} now",
            kind=now[0].dtype,
            remedy="Keep weights in float32 (dtype), and compute in half precision (fprop_dtype)",
        )
        if said and facts["applied_grad_norm"] > 0:  # without a step, as at a learning rate of 0, nothing is rounded
            log.warning(said, once=True)
        self._before = []
        return None

    def _numbers(self, state: Mapping[str, Any]) -> list[Any]:
        weights = named(state["params"])
        flat = [np.asarray(weights[name].addressable_data(0)).reshape(-1) for name in self._names]
        return [each[:: rounding.stride_of(len(each))].copy() for each in flat]


class EfficientLogging(Logging):
    """Rows of train.log.tsv, plus tokens per second and device, and MFU if the device's peak is known."""

    def __init__(self, *values: Any, efficiency: Efficiency, **options: Any) -> None:
        super().__init__(*values, **options)
        self._efficiency = efficiency

    def _cells(self, window: Window, *, epoch: int, number: int) -> dict[str, Cell]:
        cells = super()._cells(window, epoch=epoch, number=number)
        seconds = window.seconds / window.num_updates if window.num_updates else 0.0
        cells |= dict(self._efficiency.facts(seconds))
        return cells | {"skipped": window.sums.get("skipped", 0.0)}


class Summarising(Callback):
    """Scalars and texts for TensorBoard, in `summaries/train`."""

    def __init__(self, parts: Parts, accumulator: MetricAccumulator, *, after: int, texts: Mapping[str, str]) -> None:
        shown = parts.options.enable_summary_writer and parts.is_first
        folder = io.join(parts.folder, SUMMARIES) if shown else None
        self._writer = tags.SummaryWriter(folder, "train", after=after if after else None)
        self._parts, self._accumulator, self._texts = parts, accumulator, texts
        self._sizes = tags.WeightSizes() if parts.train.variable_norm_summary else None
        self._wanted = parts.options.enable_summary_writer  # on all processes: the sizes of split weights take them all

    def on_start(self, session: Session) -> None:
        """Write the description of the job."""
        self._writer.texts(self._texts, session.number)

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Write scalars if they are due."""
        if due(step.number, self._parts.train.summary_interval_steps):
            window = self._accumulator.take(SUMMARY)
            if self._wanted:
                with self._accumulator.stopwatch.paused():
                    self._writer.scalars(self._tags(session, window), step.number)
        return None

    def _tags(self, session: Session, window: Window) -> dict[str, float]:
        totals = Totals()
        totals.add(window.sums)
        metrics = final_of(self._parts.task.metrics, totals.by_name())
        weights = {name: weight / max(window.num_updates, 1) for name, weight in totals.weights().items()}
        found = {"loss": window.ratio("loss_sum", "count"), "Steps/sec": window.updates_per_second}
        found |= tags.metric_tags(metrics, weights, prefix="Metrics") | tags.learning_tags(self._accumulator.last)
        found |= tags.layer_tags(session.engine.take_summaries())
        if self._sizes is not None:
            found |= self._sizes(session.state["params"])
        return found

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class Evaluating(Scoring):
    """Evaluates the next training batch and the evaluation inputs, at intervals and at the end.

    Attributes:
        results: `<program>/<metric>` -> value, of the last evaluation.
        step: of the last evaluation; -1 before the first.
    """

    def __init__(
        self,
        parts: Parts,
        programs: Sequence[EvalProgram],
        feed: Feed,
        *,
        accumulator: MetricAccumulator,
        table: GrowingTable,
    ) -> None:
        super().__init__(table, accumulator, partial(means_of, parts), ascending=False)
        self.results: dict[str, float] = {}
        self.step = -1
        self._parts, self._programs, self._feed = parts, programs, feed
        self._talk = world.Talk("eval_train")
        shown = parts.options.enable_summary_writer and parts.is_first and not parts.train.eval_skip_train
        self._writer = tags.SummaryWriter(io.join(parts.folder, SUMMARIES) if shown else None, "eval_train")

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Evaluate if it is due or was cut short, and after the last update."""
        interval = self._parts.train.eval_interval_steps
        wanted = due(step.number, interval) or step.number == session.until or step.cut_at == self.name
        if interval > 0 and wanted:
            self.evaluate(session)
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Evaluate what was reached if training ended before its last update, e.g. because the data ran out."""
        wanted = stop.finished and self._parts.train.eval_interval_steps > 0
        if wanted and session.number > 0 and not session.progress.just_evaluated:
            self.evaluate(session)

    def _score(self, session: Session) -> dict[str, float]:
        before, (self.step, self.results) = (self.step, self.results), (session.number, {})
        try:
            with self._feed.evaluated():
                return self._run_programs(session)
        except Interrupted:
            self.step, self.results = before
            raise

    def _run_programs(self, session: Session) -> dict[str, float]:
        if not self._parts.train.eval_skip_train:
            self._note("eval_train", self._next_batch(session))
        found: dict[str, float] = {}
        for index, program in enumerate(self._programs):
            metrics = program.run(session.state, session.number, again=True)
            self._note(program.name, metrics)
            mark = f"@{program.data.name}" if index else ""
            found |= {f"{name}{mark}": value for name, value in metrics.items()}
        return found

    def _decisive(self) -> float:
        return next((self.metrics[name] for name in SCORES if name in self.metrics), math.nan)

    def _note(self, program: str, metrics: Mapping[str, float]) -> None:
        self.results |= {f"{program}/{name}": value for name, value in metrics.items()}

    def _next_batch(self, session: Session) -> dict[str, float]:
        """Evaluate the next training batch without consuming it."""
        batch = self._feed.data.peek_padded()
        if self._talk.agree_any(batch is None):
            return {}
        engine, totals = session.engine, Totals()
        found = engine.predictions_to_host(engine.score(session.state, batch))
        totals.add({name: value for name, value in found.items() if isinstance(value, float)})
        metrics, shown = measured(self._parts, totals, {})
        self._writer.scalars(shown, session.number)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the last results, which callbacks after this one need when a signal ends the decoding of this step."""
        return {"step": self.step, "results": self.results, "metrics": self.metrics}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.step, self.results, self.metrics = saved["step"], dict(saved["results"]), dict(saved["metrics"])

    def close(self) -> None:
        """Close files."""
        self._writer.close()
        for program in self._programs:
            program.close()


def means_of(parts: Parts, sums: Mapping[str, float]) -> dict[str, float]:
    """Return the task's metrics, computed from sums of facts."""
    totals = Totals()
    totals.add(sums)
    return final_of(parts.task.metrics, totals.by_name())


class Decoding(Callback):
    """Decodes during training, at intervals and after the last update.

    Attributes:
        results: `<program>/<metric>` -> value, of the last decoding.
        step: of the last decoding; -1 before the first.
    """

    name = "decoding"

    def __init__(
        self, parts: Parts, programs: Sequence[DecodeProgram], feed: Feed, accumulator: MetricAccumulator
    ) -> None:
        self.results: dict[str, float] = {}
        self.step = -1
        self._parts, self._programs, self._feed, self._accumulator = parts, programs, feed, accumulator

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Decode if it is due or was cut short, and after the last update."""
        train = self._parts.train
        wanted = due(step.number, train.decode_interval_steps) and step.number >= train.decode_start_after_n_steps
        if self._programs and (wanted or step.number == session.until or step.cut_at == self.name):
            self._decode(session)
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Decode with what was reached if training ended before its last update."""
        if self._programs and stop.finished and session.number not in {0, self.step}:
            self._decode(session)

    def _decode(self, session: Session) -> None:
        self._accumulator.settle()
        with self._accumulator.stopwatch.paused(), self._feed.evaluated():
            self.results = run_all(self._programs, session.state, session.number, again=True)
        self.step = session.number

    def state_dict(self) -> dict[str, Any]:
        """Return the last results."""
        return {"step": self.step, "results": self.results}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.step, self.results = saved["step"], dict(saved["results"])

    def close(self) -> None:
        """Close files."""
        for program in self._programs:
            program.close()


def run_all(programs: Sequence[Program], state: Any, step: int, *, again: bool = False) -> dict[str, float]:
    """Run programs one after another and return their metrics as `<program>/<name>` -> value."""
    found: dict[str, float] = {}
    for program in programs:
        metrics = program.run(state, step, again=again)
        found |= {f"{program.name}/{name}": value for name, value in metrics.items()}
    return found


class StoppingEarly(Callback):
    """Calls the task's early_stopping_fn after each evaluation and decoding. Must come after both callbacks.

    Attributes:
        reason: why training ended here; '' while it goes on. Checkpoints hold it, so that the same job does not go on.
    """

    name = "stopping_early"

    def __init__(self, parts: Parts, evaluating: Evaluating, decoding: Decoding, ranks: Ranks) -> None:
        self._parts, self._ranks = parts, ranks
        self._sources: tuple[tuple[Mode, Evaluating | Decoding], ...] = (("eval", evaluating), ("decode", decoding))
        self.reason = ""

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Stop if the function says so; the first process decides for all."""
        ask = self._parts.task.early_stopping
        if ask is None:
            return None
        for mode, source in self._sources:
            if source.step == step.number:
                last = step.number >= session.total
                enough = is_enough(ask, source.results, mode, step.number, last=last, path=self._parts.folder)
                if self._ranks.broadcast(enough):
                    self.reason = f"early_stopping_fn: stop at step {step.number}"
                    return Stop(self.reason)
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return why training ended."""
        return {"reason": self.reason}

    @classmethod
    def reason_in(cls, facts: Mapping[str, Any]) -> str:
        """Return why training ended at a checkpoint, from its facts; '' if it did not."""
        return str(facts.get("callbacks", {}).get(cls.name, {}).get("reason", ""))


WARM_UP_STEPS = 5
"""Updates before the trace of `--pgle=profile`, if the experiment sets none."""


class Profiling(Callback):
    """Traces some updates for TensorBoard's profiler and Perfetto, into `plugins/profile` of the job's summaries."""

    def __init__(self, parts: Parts) -> None:
        train = parts.train
        self._begin, self._least, self._seconds = (
            train.profiler_capture_step, train.profiler_num_steps, train.profiler_min_duration_sec,
        )  # fmt: skip
        self._folder = io.join(parts.folder, SUMMARIES, "train")
        self._since: tuple[int, float] | None = None
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._is_for_pgle = parts.options.profile_guided.mode == "profile"

    def on_start(self, session: Session) -> None:
        """Choose the updates to trace if the experiment does not: after the first ones, which compile."""
        if self._begin is None and self._is_for_pgle:
            first = session.progress.num_updates
            self._begin = first + max(1, min(WARM_UP_STEPS, session.until - first - self._least))
        if self._begin == session.progress.num_updates:
            self._start(session.progress.num_updates)

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Start or stop the trace."""
        if self._begin is None:
            return None
        if self._since is None and step.number == self._begin:
            self._start(step.number)
        elif self._since is not None:
            first, begun = self._since
            if step.number - first >= self._least and time.monotonic() - begun >= self._seconds:
                self._end(session)
        return None

    def _start(self, number: int) -> None:
        self._since = (number, time.monotonic())
        # The profiler writes to local files only; the folder of the run may be remote.
        self._place = tempfile.TemporaryDirectory(prefix="xdpx-trace-")
        jax.profiler.start_trace(self._place.name)

    def _end(self, session: Session) -> None:
        jax.block_until_ready(session.state)
        jax.profiler.stop_trace()
        self._since, self._begin = None, None
        if self._place is not None:
            io.copytree(self._place.name, self._folder)
            self._place.cleanup()
        log.info(f"a trace of updates is in {io.join(self._folder, 'plugins', 'profile')}")
        if self._is_for_pgle:
            log.info(f"make the profile: x-script pgle_profile {self._folder}")

    def on_end(self, session: Session, stop: Stop) -> None:
        """Stop a running trace."""
        if self._since is not None:
            self._end(session)


class CollectingGarbage(Callback):
    """Runs the garbage collector only at fixed updates, so that processes do it together instead of waiting in turn."""

    def __init__(self, interval: int) -> None:
        self._interval = interval

    def on_start(self, session: Session) -> None:
        """Collect once, and disable automatic collection."""
        if self._interval:
            gc.collect()
            gc.freeze()
            gc.disable()

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Collect if it is due."""
        if due(step.number, self._interval):
            gc.collect()
        return None

    def close(self) -> None:
        """Enable automatic collection again."""
        if self._interval:
            gc.enable()
            gc.unfreeze()
