"""The `Seq2SeqTrainer`: evaluates and predicts by generating text."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from xdpx.trainer.outputs import PredictionOutput
from xdpx.trainer.trainer import Inputs, Trainer

FROM_LABELS = ("decoder_input_ids", "decoder_attention_mask")
"""Inputs that a collator makes of the labels: generation must not see them."""

LENGTH_OF_TRANSFORMERS = 20
"""Tokens that are generated at most where nobody says how many."""


class Seq2SeqTrainer(Trainer):
    """A Trainer for models that generate: with `predict_with_generate`, predictions are generated ids.

    `evaluate` and `predict` also take what `model.generate` takes, e.g. `max_length`, `num_beams`.
    """

    def __init__(self, model: nn.Module | None = None, args: Any = None, *rest: Any, **options: Any) -> None:
        super().__init__(model, args, *rest, **options)
        self._gen_kwargs: dict[str, Any] = {}
        if getattr(self.args, "generation_config", None) is not None:
            self.model.generation_config = self.load_generation_config(self.args.generation_config)

    @staticmethod
    def load_generation_config(gen_config_arg: str | Path | GenerationConfig) -> GenerationConfig:
        """Give how to generate, from an object, a file, a folder or the name of a model.

        Raises:
            ValueError: it contradicts itself, so that it could not be saved with the model.
        """
        if isinstance(gen_config_arg, GenerationConfig):
            config = copy.deepcopy(gen_config_arg)
        elif Path(gen_config_arg).is_file():
            path = Path(gen_config_arg)
            config = GenerationConfig.from_pretrained(path.parent, path.name)
        else:
            config = GenerationConfig.from_pretrained(gen_config_arg)
        try:
            config.validate(strict=True)
        except ValueError as error:
            raise ValueError(f"generation_config: {error}\nCorrect it: it is saved with the model.") from error
        return config

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
        """Complete what was given by the arguments."""
        chosen, args = dict(given), self.args
        if chosen.get("max_length") is None and chosen.get("max_new_tokens") is None:
            chosen["max_length"] = args.generation_max_length
        if chosen.get("num_beams") is None:
            chosen["num_beams"] = args.generation_num_beams
        return {name: value for name, value in chosen.items() if value is not None}

    def prediction_step(
        self, model: nn.Module, inputs: Inputs, prediction_loss_only: bool, ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """Give (loss, generated ids, labels) of one batch, both filled up to the longest that may be generated."""
        if not self.args.predict_with_generate or prediction_loss_only:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        inputs = self._prepare_inputs(inputs)
        loss = self._loss_of(model, inputs) if "labels" in inputs else None
        options = gen_kwargs or self._gen_kwargs
        generated = self.model.generate(**_without_labels(inputs), **{"synced_gpus": self.strategy.shards, **options})
        labels = self._filled_up(inputs["labels"]) if "labels" in inputs else None
        return loss, self._filled_up(generated), labels

    def _loss_of(self, model: nn.Module, inputs: Inputs) -> Tensor:
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs)
        if self.label_smoother is not None:
            loss = self.label_smoother(outputs, inputs["labels"])
        else:
            loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
        return loss.detach().mean()

    def _filled_up(self, ids: Tensor) -> Tensor:
        """Fill rows up to what the model's own generation config lets it generate at most, if they are shorter."""
        config, have = self.model.generation_config, ids.shape[-1]
        lengths = (config.max_length or LENGTH_OF_TRANSFORMERS, (config.max_new_tokens or 0) + 1)
        wanted = next((length for length in lengths if have < length), have)
        return nn.functional.pad(ids, (0, wanted - have), value=self._pad_id()) if wanted > have else ids

    def _pad_id(self) -> int:
        """Give the id of padding: of the tokenizer, or of the model."""
        processing, config = self.processing_class, self.model.config
        names = (processing, "pad_token_id"), (processing, "eos_token_id"), (config, "pad_token_id")
        found = next((getattr(owner, name) for owner, name in names if getattr(owner, name, None) is not None), None)
        if found is None:
            raise ValueError(
                "predict_with_generate: no padding token is known to fill up what was generated. Set "
                "model.config.pad_token_id, or give the tokenizer as processing_class."
            )
        return int(found)


def _without_labels(inputs: Inputs) -> Inputs:
    """Leave out what was made of the labels, so that the model generates freely."""
    made = inputs.get("decoder_input_ids")
    if made is None or "labels" not in inputs or made.shape != inputs["labels"].shape:
        return inputs
    return {name: value for name, value in inputs.items() if name not in FROM_LABELS}
