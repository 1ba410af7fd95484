"""A training that gets worse is stopped, and the best weights are restored."""

import json
from pathlib import Path

import torch
from torch import nn
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0]))
        self.shift = nn.Parameter(torch.tensor([0.0]))

    def forward(self, x, labels):
        y = self.weight * x + self.shift
        return ((y - labels) ** 2).mean(), y


x = torch.linspace(-1, 1, 40)
train = [{"x": value, "labels": 2 * value + 1} for value in x]
valid = [{"x": value, "labels": 1.5 * value + 0.4} for value in x]  # training passes near this optimum on its way

args = TrainingArguments(
    output_dir="out",
    learning_rate=0.05,
    lr_scheduler_type="constant",
    num_train_epochs=10,
    eval_strategy="steps",
    eval_steps=3,
    save_steps=3,
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    greater_is_better=False,
    logging_steps=3,
    use_cpu=True,
    report_to="none",
)
trainer = Trainer(
    Line(),
    args,
    train_dataset=train,
    eval_dataset=valid,
    callbacks=[EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=0.001)],
)
trainer.train()
outcome = {
    "history": trainer.state.log_history,
    "step": trainer.state.global_step,
    "best": [trainer.state.best_metric, trainer.state.best_global_step],
    "best_folder": Path(trainer.state.best_model_checkpoint).name,
    "weights": [trainer.model.weight.item(), trainer.model.shift.item()],
    "kept": sorted(path.name for path in Path("out").iterdir()),
}
Path("outcome.json").write_text(json.dumps(outcome))
