"""Train in fp16 through DOOR and make one update overflow. Usage: fp16_overflow.py DOOR SPEC.json.

DOOR is `engine`, x-train's engine with its own Adam, or `trainer`, our Trainer. The loss of update `planted` (from 0)
is multiplied by a million: its gradient is finite in float32, but overflows in float16.
Prints {"updates": [{"loss", "skipped", "moved", "scale_before", "scale"}, ...]}.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers.random_bert import Spec, batch_of, classifier, read_spec, samples
from xdpx.engines.base import Task

TOO_MUCH = 1e6
Told = dict[str, Any]


class Weighted(nn.Module):
    """A classifier whose loss is multiplied by a factor in the batch."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.bert = classifier(spec)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, loss_factor: Tensor
    ) -> dict[str, Tensor]:
        """Return the mean loss of the rows, times the factor, and the logits."""
        logits = self.bert(input_ids=input_ids, attention_mask=attention_mask).logits
        return {"loss": nn.functional.cross_entropy(logits, labels) * loss_factor.mean(), "logits": logits}


class Classify(Task):
    """The task for x-train's engine; see `engines.base.Task`."""

    def __init__(self, spec: Spec) -> None:
        self.model = Weighted(spec)

    def train_step(self, batch: Mapping[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss sum, the count, and no facts."""
        count = len(batch["labels"])
        return self.model(**batch)["loss"] * count, count, {}

    def valid_step(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the logits."""
        return {"logits": self.model(**batch)["logits"]}


def by_engine(spec: Spec) -> Iterator[Told]:
    """Take the updates with x-train's engine, and yield a report of each."""
    from xdpx.engines.pytorch.engine import PyTorchEngine
    from xdpx.engines.pytorch.options import EngineOptions
    from xdpx.optimizers import optimizers

    adam = optimizers["adam"]
    engine = PyTorchEngine(
        lambda: Classify(spec),
        make_optimizer=lambda model: adam(adam.Parameters(), groups=[{"params": list(model.parameters()), "lr": 1e-4}]),
        options=EngineOptions(device="cuda" if spec["gpu"] else "cpu", precision="fp16", clip_norm=1.0),
    )
    state, rows = engine.start(1), samples_with_factor(spec)
    for first in range(0, len(rows), spec["rows"]):
        before, scale = engine.weights(state), state.loss_scale.scale
        state, facts = engine.update(state, [batch_of(rows[first : first + spec["rows"]])])
        numbers = engine.facts_to_host(facts)
        yield {
            "loss": numbers["loss_sum"] / numbers["count"], "skipped": bool(numbers["skipped"]),
            "moved": differ(before, engine.weights(state)), "scale_before": scale, "scale": state.loss_scale.scale,
        }  # fmt: skip


def by_trainer(spec: Spec) -> Iterator[Told]:
    """Take the updates with our Trainer, and yield a report of each."""
    from xdpx import Trainer, TrainerCallback, TrainingArguments

    model, told = Weighted(spec), list[Told]()

    def scale() -> float:
        scaler = trainer.accelerator.scaler
        assert scaler is not None  # always set under fp16
        return scaler.get_scale()

    class Watch(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.scale = scale()
            self.before = {name: weight.detach().clone() for name, weight in model.state_dict().items()}

        def on_step_end(self, *_: Any, **__: Any) -> None:
            told.append({
                "skipped": trainer.accelerator.optimizer_step_was_skipped,
                "moved": differ(self.before, model.state_dict()),
                "scale_before": self.scale, "scale": scale(),
            })  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, fp16=True, use_cpu=not spec["gpu"], per_device_train_batch_size=spec["rows"], num_train_epochs=1,
            learning_rate=1e-4, train_sampling_strategy="sequential", logging_steps=1, save_strategy="no",
            report_to="none", disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(model, args, train_dataset=samples_with_factor(spec), callbacks=[Watch()])
        trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    for update, loss in zip(told, losses, strict=True):
        yield update | {"loss": loss}


def samples_with_factor(spec: Spec) -> list[dict[str, Tensor]]:
    """Return samples with loss factor 1, except for those of the planted update."""
    planted = range(spec["planted"] * spec["rows"], (spec["planted"] + 1) * spec["rows"])
    return [
        row | {"loss_factor": torch.tensor(TOO_MUCH if number in planted else 1.0)}
        for number, row in enumerate(samples(spec))
    ]


def differ(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> bool:
    """Return whether any weight differs."""
    return any(not torch.equal(weight, after[name]) for name, weight in before.items())


def main() -> None:
    """Train through the given door."""
    spec = read_spec(sys.argv[2])
    print(json.dumps({"updates": list({"engine": by_engine, "trainer": by_trainer}[sys.argv[1]](spec))}))


if __name__ == "__main__":
    main()
