"""Label smoothing in training, preprocessed logits, and metrics from inputs, at once and batch by batch."""

import json
from pathlib import Path

import numpy as np
import torch
from transformers import Trainer, TrainingArguments
from transformers.models.bert import BertConfig, BertForSequenceClassification

dice = torch.Generator().manual_seed(1)
rows = [{"input_ids": torch.randint(5, 50, (6,), generator=dice), "labels": number % 3} for number in range(26)]
shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def build(name, **changes):
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=3, **shape))
    args = TrainingArguments(
        output_dir=f"out/{name}",
        max_steps=4,
        learning_rate=1e-3,
        label_smoothing_factor=0.1,
        logging_steps=1,
        save_strategy="no",
        per_device_eval_batch_size=4,
        use_cpu=True,
        report_to="none",
        **changes.pop("settings", {}),
    )
    return Trainer(model, args, train_dataset=rows, eval_dataset=rows, **changes)


def whole(predictions):
    first = np.asarray(predictions.inputs)[:, 0]
    right = predictions.predictions == predictions.label_ids
    return {"accuracy": float(right.mean()), "first": int(first.sum()), "losses": len(predictions.losses)}


class Streaming:
    def __init__(self):
        self.right = self.count = 0

    def __call__(self, predictions, compute_result):
        self.right += int((predictions.predictions.argmax(-1) == predictions.label_ids).sum())
        self.count += len(predictions.label_ids)
        return {"accuracy": self.right / self.count, "rows": self.count} if compute_result else {}


together = build(
    "whole",
    settings={"include_for_metrics": ["inputs", "loss"], "eval_accumulation_steps": 2},
    compute_metrics=whole,
    preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
)
together.train()
streamed = build("streamed", settings={"batch_eval_metrics": True}, compute_metrics=Streaming())
streamed.train()
only_loss = build("loss", settings={"prediction_loss_only": True})
scores = together.evaluate(metric_key_prefix="final")
outcome = {
    "history": together.state.log_history,
    "scores": scores,
    "streamed": streamed.evaluate(),
    "loss_only": only_loss.evaluate(),
    "shape": list(together.predict(rows).predictions.shape),
}
Path("outcome.json").write_text(json.dumps(outcome))
