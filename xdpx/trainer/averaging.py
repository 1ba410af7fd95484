"""Averaged weights of a Trainer (EMA, SWA, or its optimizer's), scored and saved instead of the trained weights.

`TrainerRun.averaged` swaps them into the model while it is scored or saved.
"""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor

from xdpx.engines.pytorch.averaging import AverageInPlace, OptimizersAverage, keeps_average
from xdpx.engines.pytorch.options import AveragingOptions
from xdpx.logger import log
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.fields import OwnFields
from xdpx.trainer.files.checkpoint_files import TrainerCheckpoint
from xdpx.trainer.parts import TrainerRun
from xdpx.utils.decisions import slow_average, updates_of


def options_of(args: TrainingArguments, total: int) -> AveragingOptions:
    """Return how weights are averaged in a training of `total` updates."""
    start = args.swa_start
    if start is not None:
        start = int(start) if start >= 1 else updates_of(start, total)
    return AveragingOptions(args.ema_decay, start, args.swa_interval)


def begin(run: TrainerRun) -> AverageInPlace | OptimizersAverage | None:
    """Return the average that the arguments ask for, starting from the current weights, or that of the optimizer.

    Raises:
        ValueError: averaging would begin after the last step, the optimizer already keeps an average, or weights are
            in half precision.
    """
    options, optimizer = options_of(run.args, run.plan.max_steps), run.optimizer
    own = keeps_average(optimizer) and not run.parts.strategy.writes_own_state
    if own and not options.averages:
        return OptimizersAverage(optimizer, _weights_of(run))
    if not options.averages:
        return None
    total = run.plan.max_steps
    if options.swa_start is not None and options.swa_start > total:
        raise ValueError(f"swa_start: is {options.swa_start}, but training has {total} steps. Use at most {total}.")
    if own:
        name = "ema_decay" if options.swa_start is None else "swa_start"
        raise ValueError(
            f"{name}: is {getattr(run.args, name)}, but {type(optimizer).__name__} keeps an average of its own. Leave "
            "it out, or use another optim."
        )
    if slow := slow_average(options.ema_decay, total):
        log.warning(slow)
    return AverageInPlace(_weights_of(run), options)


def _weights_of(run: TrainerRun) -> dict[str, Tensor]:
    """Return the weights that the optimizer updates, by name."""
    moved = {id(weight) for group in run.optimizer.param_groups for weight in group["params"]}
    named = run.parts.strategy.unwrap(run.model_wrapped).named_parameters()
    return {name: weight for name, weight in named if id(weight) in moved}


def resume(run: TrainerRun, checkpoint: str) -> None:
    """Load the trained weights of a checkpoint into the model, if the model weights saved there are averaged ones.

    Raises:
        ValueError: SWA has already begun, but the checkpoint was averaged with other swa_start or swa_interval.
    """
    saved = TrainerCheckpoint(checkpoint)
    options = options_of(run.args, run.plan.max_steps)
    before = asdict(OwnFields()) | (saved.arguments() or {})  # a checkpoint lists only those that were set
    same = all(before[name] == getattr(run.args, name) for name in ("swa_start", "swa_interval"))
    if options.swa_start is not None and options.has_begun(run.state.global_step) and not same:
        raise ValueError(
            f"swa_start: the average starts at update {options.swa_start}, but the one in {checkpoint} has other "
            "points. Resume with its swa_start and swa_interval, or start after its step."
        )
    trained = saved.trained()
    if trained is not None:
        if isinstance(run.average, OptimizersAverage):
            run.average.hide()  # before: what it would put there is not what was trained
        run.parts.strategy.load_weights(run.model_wrapped, trained)


def end(run: TrainerRun) -> None:
    """Put the averaged weights into the model for good, at the end of training."""
    if run.average is not None:
        run.average.settle(run.state.global_step)
        run.average = None
