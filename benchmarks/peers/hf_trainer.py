"""Fine-tune with the Hugging Face Trainer and its defaults. Usage: hf_trainer.py SPEC.json.

SPEC has train, dev (TSV: text TAB label), model, max_len, batch_size, epochs, max_steps (-1 for all), learning_rate,
warmup_ratio, weight_decay, seed and group_by_length. Prints {"samples_per_second", "seconds", "accuracy"}.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    BertTokenizerFast,
    Trainer,
    TrainingArguments,
)


def accuracy(predictions: Any) -> dict[str, float]:
    """Return the share of rows whose highest logit is the label."""
    return {"accuracy": float((predictions.predictions.argmax(-1) == predictions.label_ids).mean())}


def tokenised(path: str, tokenizer: Any, max_len: int) -> Dataset:
    """Load and tokenise a table without padding, as the Trainer's default collator expects."""
    rows = Dataset.from_csv(path, sep="\t", quoting=3, names=["text", "label"], cache_dir=tempfile.mkdtemp())
    return rows.map(
        lambda batch: tokenizer(batch["text"], truncation=True, max_length=max_len),
        batched=True,
        remove_columns=["text"],
    )


def arguments(spec: dict[str, Any], folder: str) -> TrainingArguments:
    """Return the Trainer's default arguments, except those that the task determines."""
    sampling: dict[str, Any] = {"train_sampling_strategy": "group_by_length"} if spec["group_by_length"] else {}
    return TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=spec["batch_size"],
        per_device_eval_batch_size=64,
        num_train_epochs=spec["epochs"],
        max_steps=spec["max_steps"],
        learning_rate=spec["learning_rate"],
        warmup_steps=spec["warmup_ratio"],
        weight_decay=spec["weight_decay"],
        seed=spec["seed"],
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        **sampling,
    )


def main() -> None:
    """Train, then score the dev split."""
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    tokenizer = BertTokenizerFast.from_pretrained(spec["model"])
    train, dev = (tokenised(spec[split], tokenizer, spec["max_len"]) for split in ("train", "dev"))
    model = AutoModelForSequenceClassification.from_pretrained(spec["model"], num_labels=len(np.unique(train["label"])))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=arguments(spec, folder),
            train_dataset=train,
            eval_dataset=dev,
            processing_class=tokenizer,
            compute_metrics=accuracy,
        )
        metrics = trainer.train().metrics
        score = trainer.evaluate()["eval_accuracy"] if spec["max_steps"] < 0 else None
    print(
        json.dumps(
            {
                "samples_per_second": metrics["train_samples_per_second"],
                "seconds": metrics["train_runtime"],
                "accuracy": score,
            }
        )
    )


if __name__ == "__main__":
    main()
