"""Set related arguments together: `arguments.set_training(...).set_save(...)`. Each setter returns the arguments."""

from __future__ import annotations

from typing import Any, Self

from xdpx.trainer.arguments.enums import HubStrategy, IntervalStrategy, OptimizerNames, SaveStrategy, SchedulerType
from xdpx.trainer.arguments.fields import Fields
from xdpx.trainer.arguments.legacy import note_written
from xdpx.trainer.arguments.trackers import trackers

# The signatures are those of the original, hence so many parameters.


class Setters(Fields):
    """The chainable setters. A parameter that is not given is reset to its default."""

    def set_training(  # noqa: PLR0913
        self,
        learning_rate: float = 5e-5,
        batch_size: int = 8,
        weight_decay: float = 0,
        num_epochs: float = 3,
        max_steps: int = -1,
        gradient_accumulation_steps: int = 1,
        seed: int = 42,
        activation_checkpointing: bool = False,
        gradient_checkpointing: bool | None = None,
    ) -> Self:
        """Set what is learned and for how long; `batch_size` is per device. Turns `do_train` on."""
        recompute = activation_checkpointing if gradient_checkpointing is None else gradient_checkpointing
        return self._set(
            do_train=True,
            learning_rate=learning_rate,
            per_device_train_batch_size=batch_size,
            weight_decay=weight_decay,
            num_train_epochs=num_epochs,
            max_steps=max_steps,
            gradient_accumulation_steps=gradient_accumulation_steps,
            seed=seed,
            activation_checkpointing=recompute,
            gradient_checkpointing=recompute,
        )

    def set_evaluate(
        self,
        strategy: str | IntervalStrategy = "no",
        steps: float = 500,
        batch_size: int = 8,
        accumulation_steps: int | None = None,
        delay: float | None = None,
        loss_only: bool = False,
    ) -> Self:
        """Set when and how to evaluate. Turns `do_eval` on, or off for "no". Raises ValueError for 0 steps."""
        when = IntervalStrategy(strategy)
        return self._set(
            eval_strategy=when,
            do_eval=when != "no",
            eval_steps=_some("steps", when, steps),
            per_device_eval_batch_size=batch_size,
            eval_accumulation_steps=accumulation_steps,
            eval_delay=delay or 0,
            prediction_loss_only=loss_only,
        )

    def set_testing(self, batch_size: int = 8, loss_only: bool = False) -> Self:
        """Set how to predict. Turns `do_predict` on."""
        return self._set(do_predict=True, per_device_eval_batch_size=batch_size, prediction_loss_only=loss_only)

    def set_save(
        self,
        strategy: str | SaveStrategy = "steps",
        steps: float = 500,
        total_limit: int | None = None,
        on_each_node: bool = False,
    ) -> Self:
        """Set when to save and how many checkpoints to keep. Raises ValueError for 0 steps."""
        when = SaveStrategy(strategy)
        return self._set(
            save_strategy=when,
            save_steps=_some("steps", when, steps),
            save_total_limit=total_limit,
            save_on_each_node=on_each_node,
        )

    def set_logging(
        self,
        strategy: str | IntervalStrategy = "steps",
        steps: float = 500,
        report_to: str | list[str] = "none",
        level: str = "passive",
        first_step: bool = False,
        nan_inf_filter: bool = False,
        on_each_node: bool = False,
        replica_level: str = "passive",
    ) -> Self:
        """Set when, where and at which level to log. Raises ValueError for 0 steps."""
        when = IntervalStrategy(strategy)
        note_written(self, ["logging_nan_inf_filter"])
        return self._set(
            logging_strategy=when,
            logging_steps=_some("steps", when, steps),
            report_to=trackers(report_to),
            log_level=level,
            logging_first_step=first_step,
            logging_nan_inf_filter=nan_inf_filter,
            log_on_each_node=on_each_node,
            log_level_replica=replica_level,
        )

    def set_push_to_hub(
        self,
        model_id: str,
        strategy: str | HubStrategy = "every_save",
        token: str | None = None,
        private_repo: bool | None = None,
        always_push: bool = False,
        revision: str | None = None,
    ) -> Self:
        """Set what is uploaded to the Hub, and where to. Turns `push_to_hub` on."""
        return self._set(
            push_to_hub=True,
            hub_model_id=model_id,
            hub_strategy=HubStrategy(strategy),
            hub_token=token,
            hub_private_repo=private_repo,
            hub_always_push=always_push,
            hub_revision=revision,
        )

    def set_optimizer(
        self,
        name: str | OptimizerNames = "adamw_torch",
        learning_rate: float = 5e-5,
        weight_decay: float = 0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        args: str | None = None,
    ) -> Self:
        """Set the optimizer and its hyper-parameters."""
        return self._set(
            optim=OptimizerNames.read(name),
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            adam_beta1=beta1,
            adam_beta2=beta2,
            adam_epsilon=epsilon,
            optim_args=args,
        )

    def set_lr_scheduler(
        self,
        name: str | SchedulerType = "linear",
        num_epochs: float = 3.0,
        max_steps: int = -1,
        warmup_steps: float = 0,
        warmup_ratio: float = 0.0,
    ) -> Self:
        """Set the learning rate schedule; `warmup_ratio` is a deprecated name of warmup_steps below 1."""
        return self._set(
            lr_scheduler_type=SchedulerType.read(name),
            num_train_epochs=num_epochs,
            max_steps=max_steps,
            warmup_steps=warmup_steps or warmup_ratio,
        )

    def set_dataloader(  # noqa: PLR0913
        self,
        train_batch_size: int = 8,
        eval_batch_size: int = 8,
        drop_last: bool = False,
        num_workers: int = 0,
        pin_memory: bool = True,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        multiprocessing_context: str | None = None,
        in_order: bool = True,
        auto_find_batch_size: bool = False,
        ignore_data_skip: bool = False,
        sampler_seed: int | None = None,
    ) -> Self:
        """Set how data is loaded; batch sizes are per device."""
        return self._set(
            per_device_train_batch_size=train_batch_size,
            per_device_eval_batch_size=eval_batch_size,
            dataloader_drop_last=drop_last,
            dataloader_num_workers=num_workers,
            dataloader_pin_memory=pin_memory,
            dataloader_persistent_workers=persistent_workers,
            dataloader_prefetch_factor=prefetch_factor,
            dataloader_multiprocessing_context=multiprocessing_context,
            dataloader_in_order=in_order,
            auto_find_batch_size=auto_find_batch_size,
            ignore_data_skip=ignore_data_skip,
            data_seed=sampler_seed,
        )

    def _set(self, **values: Any) -> Self:
        for name, value in values.items():
            setattr(self, name, value)
        return self


def _some(name: str, when: str, steps: float) -> float:
    if when == "steps" and steps == 0:
        raise ValueError(f"{name}: is 0, and strategy is 'steps'. Give the number of updates between two, 1 or more.")
    return steps
