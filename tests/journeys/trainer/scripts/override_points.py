"""A Trainer subclass that overrides nearly every method."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, SequentialSampler
from transformers import Trainer, TrainingArguments, default_data_collator

calls = []


class Own(Trainer):
    def get_train_dataloader(self):
        calls.append("train_loader")
        data = self.train_dataset
        return DataLoader(data, batch_size=4, sampler=SequentialSampler(data), collate_fn=default_data_collator)

    def get_eval_dataloader(self, eval_dataset=None):
        calls.append("eval_loader")
        return DataLoader(eval_dataset or self.eval_dataset, batch_size=3, collate_fn=default_data_collator)

    def get_test_dataloader(self, test_dataset):
        calls.append("test_loader")
        return super().get_test_dataloader(test_dataset)

    def create_optimizer(self):
        calls.append("optimizer")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.args.learning_rate, momentum=0.9)
        return self.optimizer

    def create_scheduler(self, num_training_steps, optimizer=None):
        calls.append(["scheduler", num_training_steps])
        self.lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer or self.optimizer, step_size=2, gamma=0.5)
        return self.lr_scheduler

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        calls.append(["step", loss.item()])
        return loss

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = 0.5 * outputs["loss"]
        return (loss, outputs) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        calls.append(["prediction", prediction_loss_only])
        return loss, logits if prediction_loss_only else logits * 10, labels

    def log(self, logs, start_time=None):
        logs["answer"] = 42
        super().log(logs, start_time)

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        scores = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        calls.append("evaluated")
        return scores


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x, labels=None):
        y = self.layer(x).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}


dice = torch.Generator().manual_seed(2)
rows = [{"x": torch.randn(2, generator=dice), "labels": torch.randn((), generator=dice)} for _ in range(16)]
torch.manual_seed(0)
args = TrainingArguments(
    output_dir="out",
    num_train_epochs=2,
    learning_rate=0.1,
    eval_strategy="epoch",
    logging_steps=1,
    max_grad_norm=0.5,
    save_strategy="no",
    use_cpu=True,
    report_to="none",
)
trainer = Own(model=Net(), args=args, train_dataset=rows, eval_dataset=rows[:6])
trainer.train()
predicted = trainer.predict(rows[:5], metric_key_prefix="held_out")
outcome = {
    "calls": calls,
    "history": trainer.state.log_history,
    "predictions": predicted.predictions.tolist(),
    "labels": predicted.label_ids.tolist(),
    "metrics": predicted.metrics,
    "rates": trainer.get_learning_rates(),
    "trainable": trainer.get_num_trainable_parameters(),
}
Path("outcome.json").write_text(json.dumps(outcome))
