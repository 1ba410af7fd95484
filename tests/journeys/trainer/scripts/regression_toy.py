"""A model that returns a tuple; accumulation, warm-up, weight decay; the returned and the logged numbers."""

import json
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Curve(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(1, 8)
        self.norm = nn.LayerNorm(8)
        self.outer = nn.Linear(8, 1)

    def forward(self, x, labels=None):
        y = self.outer(torch.tanh(self.norm(self.inner(x)))).squeeze(-1)
        return (y,) if labels is None else (((y - labels) ** 2).mean(), y)


class Points(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.x = torch.randn(count, 1, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.x[index, 0] ** 2}


outcome = {}
for schedule in ("linear", "constant", "cosine", "polynomial", "inverse_sqrt", "constant_with_warmup"):
    for accumulation in (1, 4):
        torch.manual_seed(0)
        args = TrainingArguments(
            output_dir=f"out/{schedule}-{accumulation}",
            lr_scheduler_type=schedule,
            gradient_accumulation_steps=accumulation,
            per_device_train_batch_size=4,
            num_train_epochs=1.5,
            learning_rate=0.05,
            weight_decay=0.1,
            warmup_steps=2,
            logging_steps=1,
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            report_to="none",
        )
        trainer = Trainer(Curve(), args, train_dataset=Points(50, 1), eval_dataset=Points(15, 2))
        result = trainer.train()
        outcome[f"{schedule}-{accumulation}"] = {
            "history": trainer.state.log_history,
            "result": [result.global_step, result.training_loss],
            "scores": trainer.evaluate(),
        }
Path("outcome.json").write_text(json.dumps(outcome))
