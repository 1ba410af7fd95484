"""The `Seq2SeqTrainer`: evaluates and predicts by generating text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch.precision import in_type
from xdpx.logger import log
from xdpx.models.pytorch.generating import filled_up, load_generation_config, pad_id_of, without_labels
from xdpx.trainer.outputs import PredictionOutput
from xdpx.trainer.trainer import Inputs, Trainer


class Seq2SeqTrainer(Trainer):
    """A Trainer for models that generate: with `predict_with_generate`, predictions are generated ids.

    `evaluate` and `predict` also take what `model.generate` takes, e.g. `max_length`, `num_beams`.
    """

    def __init__(self, model: nn.Module | None = None, args: Any = None, *rest: Any, **options: Any) -> None:
        if args is not None and not hasattr(args, "predict_with_generate"):
            raise TypeError(
                f"Seq2SeqTrainer: args is a {type(args).__name__}, which does not say how to generate. Give "
                "Seq2SeqTrainingArguments."
            )
        super().__init__(model, args, *rest, **options)
        self._gen_kwargs: dict[str, Any] = {}

    def _take_model(self, model: nn.Module) -> None:
        super()._take_model(model)
        if getattr(self.args, "generation_config", None) is not None:
            self.model.generation_config = self.load_generation_config(self.args.generation_config)

    @staticmethod
    def load_generation_config(gen_config_arg: Any) -> Any:
        """Return a generation config, given as an object, a file, a folder or the name of a model."""
        return load_generation_config(gen_config_arg)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:  # fmt: skip
        """Score a data set; see `Trainer.evaluate`."""
        self._gen_kwargs = self._generation(gen_kwargs)
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:  # fmt: skip
        """Predict a data set; see `Trainer.predict`."""
        self._gen_kwargs = self._generation(gen_kwargs)
        return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    def _generation(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the generation options given, completed from the arguments."""
        chosen, args = dict(given), self.args
        own = [name for name in ("generation_max_length", "generation_num_beams") if getattr(args, name) is not None]
        if (given or own) and not args.predict_with_generate:
            log.warning(
                f"predict_with_generate: is False, so nothing is generated and {', '.join([*given, *own])} has no "
                "effect. Set it to True, or leave that out.",
                once=True,
            )
        if chosen.get("max_length") is None and chosen.get("max_new_tokens") is None:
            chosen["max_length"] = args.generation_max_length
        if chosen.get("num_beams") is None:
            chosen["num_beams"] = args.generation_num_beams
        return {name: value for name, value in chosen.items() if value is not None}

    def prediction_step(
        self, model: nn.Module, inputs: Inputs, prediction_loss_only: bool, ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """Return (loss, generated ids, labels) of one batch, both padded to the maximum generated length."""
        if not self.args.predict_with_generate or prediction_loss_only:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        inputs = in_type(self._prepare_inputs(inputs), self._run.evaluation_type)
        loss = self._loss_of(model, inputs) if "labels" in inputs else None
        options = gen_kwargs or self._gen_kwargs
        generate: Callable[..., Tensor] = self.model.generate  # type: ignore[assignment]
        generated = generate(**without_labels(inputs), **{"synced_gpus": self.strategy.shards, **options})
        config, pad_id = self.model.generation_config, partial(pad_id_of, self.processing_class, self.model)
        labels = filled_up(inputs["labels"], config, pad_id) if "labels" in inputs else None
        return loss, filled_up(generated, config, pad_id), labels

    def _loss_of(self, model: nn.Module, inputs: Inputs) -> Tensor:
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, _ = self.loss_calls.loss_and_outputs(model, {**inputs})  # a copy: it may take the labels out
        return loss.detach().mean()

    def _pad_tensors_to_max_len(self, tensor: Tensor, max_length: int) -> Tensor:
        """Pad rows of ids; for methods copied from the original, as those of `Copied`."""
        pad_id = pad_id_of(self.processing_class, self.model)
        return nn.functional.pad(tensor, (0, max_length - tensor.shape[-1]), value=pad_id)
