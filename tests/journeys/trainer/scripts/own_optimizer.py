"""A custom optimizer and schedule, frozen layers, gradient clipping off; and optimizers chosen by name."""

import json
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 1)

    def forward(self, x, labels=None):
        y = self.head(torch.relu(self.norm(self.body(x)))).squeeze(-1)
        return ((y - labels) ** 2).mean(), y


dice = torch.Generator().manual_seed(2)
rows = [{"x": torch.randn(4, generator=dice), "labels": torch.randn((), generator=dice)} for _ in range(32)]


def settings(name, **changes):
    common = {"num_train_epochs": 2, "learning_rate": 0.01, "logging_steps": 1, "save_strategy": "no"}
    return TrainingArguments(f"out/{name}", use_cpu=True, report_to="none", **common, **changes)


torch.manual_seed(0)
model = Net()
model.body.requires_grad_(False)
optimizer = torch.optim.Adamax([p for p in model.parameters() if p.requires_grad], lr=0.05)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
args = settings("own", max_grad_norm=0.0)
trainer = Trainer(model, args, train_dataset=rows, optimizers=(optimizer, schedule))
trainer.train()
outcome = {"own": trainer.state.log_history, "trainable": trainer.get_num_trainable_parameters()}
for name in ("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop", "adafactor"):
    torch.manual_seed(0)
    args = settings(name, optim=name, weight_decay=0.1)
    trainer = Trainer(Net(), args, train_dataset=rows)
    trainer.train()
    decayed = sorted(trainer.get_decay_parameter_names(trainer.model))
    groups = [[len(group["params"]), group["weight_decay"]] for group in trainer.optimizer.param_groups]
    outcome[name] = {"history": trainer.state.log_history, "decayed": decayed, "groups": groups}
torch.manual_seed(0)
pair = (torch.optim.SGD, {"lr": 0.02, "momentum": 0.5})
trainer = Trainer(Net(), settings("pair"), train_dataset=rows, optimizer_cls_and_kwargs=pair)
trainer.train()
outcome["pair"] = trainer.state.log_history
Path("outcome.json").write_text(json.dumps(outcome))
