"""A callback that records every event, one that makes decisions, and callbacks that are added and removed."""

import json
from pathlib import Path

import torch
from torch import nn
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments

EVENTS = [
    "on_init_end",
    "on_train_begin",
    "on_train_end",
    "on_epoch_begin",
    "on_epoch_end",
    "on_step_begin",
    "on_pre_optimizer_step",
    "on_optimizer_step",
    "on_substep_end",
    "on_step_end",
    "on_evaluate",
    "on_predict",
    "on_save",
    "on_log",
    "on_prediction_step",
]
seen = []


def written(event):
    def note(self, args, state, control, **kwargs):
        seen.append([event, state.global_step, sorted(set(kwargs) - {"tokenizer", "train_dataloader"})])

    return note


Scribe = type("Scribe", (TrainerCallback,), {event: written(event) for event in EVENTS})


class Decider(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            control.should_log = True
            control.should_evaluate = True
        if state.global_step == 3:
            control.should_save = True
        if state.global_step == 5:
            control.should_epoch_stop = True
        return control

    def on_log(self, args, state, control, logs=None, **kwargs):
        seen.append(["logs", sorted(logs)])


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0]))

    def forward(self, x, labels=None):
        return (((self.weight * x - labels) ** 2).mean(), self.weight * x)


rows = [{"x": torch.tensor(float(i)), "labels": torch.tensor(2.0 * i)} for i in range(12)]
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    num_train_epochs=2,
    save_strategy="no",
    logging_strategy="epoch",
    use_cpu=True,
    report_to="none",
)
trainer = Trainer(Line(), args, train_dataset=rows, eval_dataset=rows[:4], callbacks=[Scribe])
trainer.add_callback(Decider())
popped = trainer.pop_callback(ProgressCallback)
trainer.add_callback(PrinterCallback)
trainer.remove_callback(PrinterCallback)
trainer.train()
trainer.predict(rows[:4])
names = [type(callback).__name__ for callback in trainer.callback_handler.callbacks]
outcome = {
    "seen": seen,
    "popped": type(popped).__name__,
    "absent": trainer.pop_callback(ProgressCallback) is None,
    "names": names,
    "folders": sorted(path.name for path in Path("out").iterdir()),
    "step": trainer.state.global_step,
    "epoch": trainer.state.epoch,
}
Path("outcome.json").write_text(json.dumps(outcome))
