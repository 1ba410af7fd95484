"""A stream without a length: max_steps decides, and the stream restarts when it ends."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainingArguments


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(22):
            yield {"x": torch.tensor([float(number % 5)]), "labels": torch.tensor(3.0 * (number % 5) - 1)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x, labels=None):
        y = self.layer(x).squeeze(-1)
        return ((y - labels) ** 2).mean(), y


torch.manual_seed(0)
args = TrainingArguments(
    output_dir="out",
    max_steps=9,
    per_device_train_batch_size=4,
    learning_rate=0.1,
    logging_steps=1,
    save_steps=4,
    use_cpu=True,
    report_to="none",
)
trainer = Trainer(Net(), args, train_dataset=Stream(), eval_dataset=Stream())
result = trainer.train()
predicted = trainer.predict(Stream())
outcome = {
    "history": trainer.state.log_history,
    "steps": result.global_step,
    "epoch": trainer.state.epoch,
    "scores": trainer.evaluate(),
    "count": len(predicted.predictions),
    "folders": sorted(path.name for path in Path("out").iterdir()),
}
Path("outcome.json").write_text(json.dumps(outcome))
