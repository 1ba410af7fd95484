"""A model with two label arguments, and one whose predictions vary in length between batches."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Span(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, input_ids, start_positions=None, end_positions=None):
        start, end = self.head(self.table(input_ids)).unbind(-1)
        if start_positions is None:
            return start, end
        loss = nn.functional.cross_entropy(start, start_positions) + nn.functional.cross_entropy(end, end_positions)
        return loss, start, end


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4)

    def forward(self, input_ids, labels=None):
        logits = self.table(input_ids)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100), logits


dice = torch.Generator().manual_seed(6)


def ragged(batch):
    width = max(len(item["input_ids"]) for item in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    labels = torch.full((len(batch), width), -100)
    for number, item in enumerate(batch):
        ids[number, : len(item["input_ids"])] = item["input_ids"]
        labels[number, : len(item["labels"])] = item["labels"]
    return {"input_ids": ids, "labels": labels}


spans = [
    {"input_ids": torch.randint(0, 20, (6,), generator=dice), "start_positions": i % 3, "end_positions": 3 + i % 3}
    for i in range(16)
]
tags = []
for number in range(13):
    ids = torch.randint(0, 20, (2 + number % 5,), generator=dice)
    tags.append({"input_ids": ids, "labels": ids % 4})

common = {"max_steps": 3, "logging_steps": 1, "save_strategy": "no", "use_cpu": True, "report_to": "none"}
torch.manual_seed(0)
names = ["start_positions", "end_positions"]
span_args = TrainingArguments("out/span", label_names=names, learning_rate=0.05, **common)
span = Trainer(Span(), span_args, train_dataset=spans, eval_dataset=spans)
span.train()
answers = span.predict(spans)
torch.manual_seed(0)
tag_args = TrainingArguments("out/tag", per_device_eval_batch_size=3, **common)
tag = Trainer(Tagger(), tag_args, data_collator=ragged, train_dataset=tags, eval_dataset=tags)
tag.train()
tagged = tag.predict(tags)
outcome = {
    "history": [span.state.log_history, tag.state.log_history],
    "scores": [span.evaluate(), answers.metrics],
    "span_shapes": [list(part.shape) for part in (*answers.predictions, *answers.label_ids)],
    "ends": answers.label_ids[1].tolist(),
    "tag_shapes": [list(tagged.predictions.shape), list(tagged.label_ids.shape)],
    "padded": [int((tagged.label_ids == -100).sum()), int(np.all(tagged.predictions == -100, axis=-1).sum())],
    "logits": tagged.predictions.tolist(),
}
Path("outcome.json").write_text(json.dumps(outcome))
