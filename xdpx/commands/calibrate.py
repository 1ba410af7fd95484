"""Fit the temperature by which a run's logits are divided, so that its probabilities are calibrated.

Usage: x-script calibrate RUN [on=SPLIT_OR_FILE] [checkpoint=NAME] [--json]

RUN is a folder that x-train wrote, of a classifier with one softmax. The temperature minimises the mean surprise (nats
per row) on the split that training evaluated, or on `on`, and is written to RUN/temperature.json. x-eval and x-pred use
it with temperature=fitted only. Predicted classes and accuracy do not change, except with predict_threshold.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters, find_input, make_plan

NAME = "calibrate"
FEWEST_ROWS = 50
"""With fewer rows the fitted temperature is mostly noise."""


class Calibrate:
    """Fit the temperature by which a run's logits are divided, so that its probabilities are calibrated."""

    class Parameters(InferenceParameters):
        """The keys of `x-script calibrate`."""

        on: str = param("", doc="Split or file with labels to fit on; '': what training evaluated.")
        print_json: bool = param(False, doc="Print one JSON object on one line instead of sentences.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse a model without a finished run."""
            found = super().conflicts()
            if self.save_dir is None and self.config is not None:
                found.append(
                    ("config", "has only initial weights, whose probabilities are meaningless. Give save_dir.")
                )
            return found

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: Calibrate.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built."""
        try:
            plan = make_plan(self.parameters, self.source)
            find_input(self.parameters.on or str(plan.train.values["valid_subset"]), plan, "on", self.source)
        except ConfigError as error:
            return list(error.faults)
        return []

    def run(self) -> None:
        """Fit the temperature, print its effect, and write it."""
        from xdpx.commands.evaluate import as_json
        from xdpx.inference.temperature import write_temperature

        found = self._fitted()
        path = write_temperature(str(self.parameters.save_dir), found)
        if self.parameters.print_json:
            sys.stdout.write(f"{as_json({**found, 'file': path})}\n")
            return
        before, after = found["before"], found["after"]
        way = "less" if found["temperature"] > 1 else "more"
        low, high = found["interval"]
        sys.stdout.write(
            f"temperature {found['temperature']:.4g} (95 % interval {low:.3g} to {high:.3g}), fitted on "
            f"{found['rows']:,} rows of {found['on']}: probabilities become {way} confident\n"
            f"negative log-likelihood {before['nats']:.4f} -> {after['nats']:.4f} nats per row, "
            f"ECE {before['ece']:.4f} -> {after['ece']:.4f} on the same rows\n"
            f"written to {path}; x-eval and x-pred use it with temperature=fitted\n"
        )

    def _fitted(self) -> dict[str, Any]:
        import numpy as np

        from xdpx.inference.predictor import Predictor
        from xdpx.metrics import fitted_temperature, sharpened
        from xdpx.tasks.scoring import score_placed
        from xdpx.utils import io

        known = self.parameters
        plan = make_plan(known, self.source)
        source = find_input(known.on or str(plan.train.values["valid_subset"]), plan, "on", self.source)
        predictor = Predictor(plan, cuda=known.cuda, seed=known.seed)
        loss = predictor.task.loss
        if not loss.reads_softmax:
            problem = f"was trained by loss '{plan.train.values['loss']}', which does not read a softmax over classes."
            raise ConfigError(
                self.source, [Fault("save_dir", problem, "A temperature calibrates only such probabilities.")]
            )
        _, gathered, _ = score_placed(predictor.engine, predictor.state, predictor.placed_batches(source), loss)
        prob, target = np.asarray(gathered["prob"], np.float64), np.asarray(gathered["target"])
        if len(target) < FEWEST_ROWS:
            problem = f"has {len(target)} rows, too few to fit a temperature."
            raise ConfigError(self.source, [Fault("on", problem, f"Name one of at least {FEWEST_ROWS} rows.")])
        logits = np.log(np.maximum(prob, np.finfo(np.float32).tiny))
        found = fitted_temperature(logits, target)
        return {
            "temperature": found.value,
            "interval": [found.low, found.high],
            "checkpoint": io.name(predictor.plan.checkpoint or ""),
            "on": source.name,
            "rows": len(target),
            "before": _quality(prob, target),
            "after": _quality(sharpened(prob, found.value), target),
        }


def _quality(prob: Any, target: Any) -> dict[str, float]:
    """Return the mean surprise in nats per row, and the expected calibration error."""
    import numpy as np

    from xdpx.metrics import reliability

    rows = np.arange(len(target))
    pred = prob.argmax(axis=1)
    own = np.maximum(prob[rows, target], np.finfo(np.float32).tiny)
    return {"nats": float(-np.log(own).mean()), "ece": reliability(prob[rows, pred], pred == target).error}


def main(argv: Sequence[str]) -> int:
    """Run the script for the run named on the command line."""
    from xdpx.commands.script_arguments import run_on_paths

    usage = "x-script calibrate RUN [on=SPLIT_OR_FILE] [--json]"
    return run_on_paths(NAME, argv, key="save_dir", usage=usage, exactly=1)
