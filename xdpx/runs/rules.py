"""Translate the keys of `x-train` into the options of its callbacks."""

from __future__ import annotations

from xdpx.reports.references import named_references
from xdpx.runs.parameters import TrainParameters
from xdpx.training.callbacks.evaluating import EvaluationPlan
from xdpx.training.callbacks.saving import SavePolicy
from xdpx.training.callbacks.stopping import StopRules


def evaluation_plan(settings: TrainParameters) -> EvaluationPlan:
    """Return when to evaluate."""
    return EvaluationPlan(
        settings.eval_interval,
        settings.major_metric,
        ascending=settings.ascending_metric,
        warmup=settings.eval_interval_warmup,
        warmup_multiplier=settings.eval_interval_warmup_multiplier or settings.eval_interval_warmup_mutiplier,
    )


MAX_LOSS = 200.0
"""What the loss of a row or token, a logarithm of probabilities, exceeds only after it has run away."""


def stop_rules(settings: TrainParameters, *, loss_of_any_size: bool) -> StopRules:
    """Return when to stop early; `loss_of_any_size`: `of_any_size` of its loss."""
    highest = float("inf") if loss_of_any_size else MAX_LOSS
    return StopRules(
        tolerance=settings.tolerance,
        min_steps=settings.min_steps,
        warmup=settings.eval_interval_warmup,
        min_lr=settings.min_lr,
        max_loss=highest if settings.max_loss is None else settings.max_loss,
    )


def save_policy(settings: TrainParameters) -> SavePolicy:
    """Return which checkpoints are kept."""
    few = settings.save_best_only or settings.save_last_only
    return SavePolicy(
        best_only=settings.save_best_only,
        last_only=settings.save_last_only,
        above_score=settings.save_above_score,
        ascending=settings.ascending_metric,
        resumable=settings.save_full_checkpoint or bool(settings.resume) or settings.save_interval is not None,
        every_state=settings.save_full_checkpoint and not few,
        interval=settings.save_interval,
    )


def draw_figures(settings: TrainParameters) -> None:
    """Redraw the figures of the run, beside those it is compared with."""
    from xdpx.reports.figures import draw_run

    draw_run(settings.save_dir, references=named_references(settings.viz_ref_dir), figext=settings.figext)
