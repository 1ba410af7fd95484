"""Batches of similar length, padded by a custom collator; the order comes from the seed."""

import json
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

widths = []


def collate(batch):
    width = max(len(item["input_ids"]) for item in batch)
    widths.append([len(item["input_ids"]) for item in batch])
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    for number, item in enumerate(batch):
        ids[number, : len(item["input_ids"])] = torch.tensor(item["input_ids"])
    return {"input_ids": ids, "labels": torch.tensor([item["label"] for item in batch])}


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 2)
        self.mix = nn.Dropout(0.2)

    def forward(self, input_ids, labels):
        logits = self.mix(self.table(input_ids)).mean(1)
        return nn.functional.cross_entropy(logits, labels), logits


dice = torch.Generator().manual_seed(9)
rows = []
for number in range(37):
    length = int(torch.randint(1, 12, (1,), generator=dice))
    rows.append({"input_ids": torch.randint(0, 30, (length,), generator=dice).tolist(), "label": number % 2})

orders = {}
for strategy in ("group_by_length", "random", "sequential"):
    widths.clear()
    torch.manual_seed(0)
    args = TrainingArguments(
        output_dir=f"out/{strategy}",
        num_train_epochs=2,
        learning_rate=0.1,
        per_device_train_batch_size=4,
        train_sampling_strategy=strategy,
        data_seed=11,
        logging_steps=1,
        save_strategy="no",
        remove_unused_columns=False,
        use_cpu=True,
        report_to="none",
    )
    trainer = Trainer(Bag(), args, data_collator=collate, train_dataset=rows)
    trainer.train()
    orders[strategy] = {"widths": list(widths), "history": trainer.state.log_history}
Path("outcome.json").write_text(json.dumps(orders))
