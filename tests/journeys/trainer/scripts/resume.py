"""Stop a training with dropout in the middle of an epoch, then continue it in a new Trainer."""

import json
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments


class Stopper(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            control.should_training_stop = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))

    def forward(self, x, labels=None):
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


dice = torch.Generator().manual_seed(4)
rows = [{"x": torch.randn(4, generator=dice), "labels": number % 3} for number in range(30)]


def build(folder, *callbacks):
    torch.manual_seed(0)
    args = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=5,
        num_train_epochs=2,
        learning_rate=0.02,
        save_steps=4,
        logging_steps=1,
        use_cpu=True,
        report_to="none",
    )
    return Trainer(Net(), args, train_dataset=rows, callbacks=list(callbacks))


straight = build("straight")
straight.train()
stopped = build("broken", Stopper)
stopped.train()
resumed = build("broken")
resumed.train(resume_from_checkpoint="broken/checkpoint-4")
again = build("broken")
again.train(resume_from_checkpoint=True)
outcome = {
    "straight": straight.state.log_history,
    "resumed": resumed.state.log_history,
    "stopped_at": stopped.state.global_step,
    "nothing_left": again.state.global_step,
    "equal": all(
        torch.equal(a, b) for a, b in zip(straight.model.parameters(), resumed.model.parameters(), strict=True)
    ),
    "folders": sorted(path.name for path in Path("broken").iterdir()),
}
Path("outcome.json").write_text(json.dumps(outcome))
