"""Two named evaluation sets, of which one decides the best model; only the best is saved."""

import json
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits} if loss is not None else {"logits": logits}


dice = torch.Generator().manual_seed(8)
rows = [{"x": torch.randn(3, generator=dice), "labels": number % 2} for number in range(40)]
torch.manual_seed(0)
args = TrainingArguments(
    output_dir="out",
    num_train_epochs=3,
    learning_rate=0.2,
    eval_strategy="steps",
    eval_steps=2,
    save_strategy="best",
    metric_for_best_model="eval_far_accuracy",
    greater_is_better=True,
    load_best_model_at_end=True,
    logging_strategy="epoch",
    use_cpu=True,
    report_to="none",
)


def compute_metrics(predictions):
    return {"accuracy": float((predictions.predictions.argmax(-1) == predictions.label_ids).mean())}


trainer = Trainer(
    model=Net(),
    args=args,
    train_dataset=rows[:24],
    eval_dataset={"near": rows[:24], "far": rows[24:]},
    compute_metrics=compute_metrics,
)
trainer.train()
outcome = {
    "history": trainer.state.log_history,
    "best": [trainer.state.best_metric, trainer.state.best_global_step],
    "one": trainer.evaluate("far"),
    "both": trainer.evaluate(),
    "unlabelled": list(trainer.predict([{"x": row["x"]} for row in rows[:5]]).predictions.shape),
    "folders": sorted(path.name for path in Path("out").iterdir()),
}
Path("outcome.json").write_text(json.dumps(outcome))
