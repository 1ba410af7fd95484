"""Give rare classes more weight: a Trainer with a loss of its own, on `text TAB label` lines.

    python examples/trainer/weighted_loss.py --train_file train.tsv --output_dir out/weighted --max_steps 100

The weight of a class is the number of rows over the number of classes times its rows, so that all classes count alike.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from local_files import read_table, small_bert, tokenised
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from xdpx import DataCollatorWithPadding, HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class RowArguments:
    """Which rows, and which model."""

    train_file: str = field(metadata={"help": "Rows to train on: text TAB label."})
    model_name_or_path: str | None = field(default=None, metadata={"help": "Default: the small BERT of a package."})
    max_seq_length: int = field(default=64, metadata={"help": "Longest sample, in tokens."})


class WeightedTrainer(Trainer):
    """A Trainer whose loss weighs every class by `class_weights`."""

    class_weights: torch.Tensor

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Weigh the cross-entropy of a batch."""
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        weights = self.class_weights.to(outputs.logits.device)
        loss = nn.functional.cross_entropy(outputs.logits, labels, weight=weights)
        return (loss, outputs) if return_outputs else loss


def recall(predictions: Any) -> dict[str, float]:
    """Return the recall of every class: what weights are for."""
    right = predictions.predictions.argmax(-1) == predictions.label_ids
    return {
        f"recall_{label}": float(right[predictions.label_ids == label].mean()) for label in set(predictions.label_ids)
    }


def main() -> None:
    """Train with weights and score every class."""
    rows, args = HfArgumentParser((RowArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(args.seed)
    table = read_table(rows.train_file)
    counts = Counter(table.labels)
    names = sorted(counts)
    path = rows.model_name_or_path or small_bert()
    tokenizer = AutoTokenizer.from_pretrained(path)
    samples = tokenised(table, tokenizer, names.index, max_length=rows.max_seq_length)
    trainer = WeightedTrainer(
        model=AutoModelForSequenceClassification.from_pretrained(path, num_labels=len(names)),
        args=args,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=samples,
        eval_dataset=samples,
        compute_metrics=recall,
    )
    trainer.class_weights = torch.tensor([len(samples) / (len(names) * counts[name]) for name in names])
    trainer.train()
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
