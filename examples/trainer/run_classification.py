r"""Fine-tune a text classifier with the flags of the well-known GLUE script, on files of your own.

    python examples/trainer/run_classification.py --model_name_or_path bert-base-cased --task_name mrpc \
        --do_train --do_eval --max_seq_length 128 --per_device_train_batch_size 32 --learning_rate 2e-5 \
        --num_train_epochs 3 --output_dir out/mrpc --overwrite_output_dir

`--task_name mrpc` reads data/mrpc/train.tsv and dev.tsv (and test.tsv with --do_predict); `--data_dir` names another
place than data, and `--train_file --validation_file --test_file` any file. A line is `text TAB label`, or
`text TAB text TAB label`. Labels that are numbers with a point are learned as numbers.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from local_files import Table, read_table, tokenised
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint

from xdpx import DataCollatorWithPadding, HfArgumentParser, Trainer, TrainingArguments, default_data_collator, set_seed

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    """Which model, and where its files come from."""

    model_name_or_path: str = field(metadata={"help": "Folder or name of a pre-trained model."})
    config_name: str | None = field(default=None, metadata={"help": "Another configuration than the model's."})
    tokenizer_name: str | None = field(default=None, metadata={"help": "Another tokenizer than the model's."})
    cache_dir: str | None = field(default=None, metadata={"help": "Where downloads are kept."})
    use_fast_tokenizer: bool = field(default=True, metadata={"help": "Whether to use the fast tokenizer."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of the model."})
    ignore_mismatched_sizes: bool = field(default=False, metadata={"help": "Whether heads of another size are new."})


@dataclass
class DataArguments:
    """Which rows, and how they become samples."""

    task_name: str | None = field(default=None, metadata={"help": "Folder of the task below data_dir."})
    data_dir: str = field(default="data", metadata={"help": "Folder that holds a folder for each task."})
    train_file: str | None = field(default=None, metadata={"help": "Rows to train on."})
    validation_file: str | None = field(default=None, metadata={"help": "Rows to score on."})
    test_file: str | None = field(default=None, metadata={"help": "Rows to predict."})
    max_seq_length: int = field(default=128, metadata={"help": "Longest sample, in tokens."})
    pad_to_max_length: bool = field(default=True, metadata={"help": "Whether every batch is as wide as the longest."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on the first rows only."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Score the first rows only."})
    max_predict_samples: int | None = field(default=None, metadata={"help": "Predict the first rows only."})

    def path(self, split: str) -> str:
        """Return the file of a split: the one named, else the task's."""
        named = {"train": self.train_file, "dev": self.validation_file, "test": self.test_file}[split]
        if named is None and self.task_name is None:
            raise SystemExit(f"There are no rows for {split}. Give --task_name, or --train_file, --validation_file, "
                             "--test_file.")  # fmt: skip
        return named or str(Path(self.data_dir) / str(self.task_name).lower() / f"{split}.tsv")


@dataclass(frozen=True)
class Labels:
    """The names of the classes in order; none when numbers are learned."""

    names: tuple[str, ...]

    def code(self, label: str) -> int | float:
        """Return the class of a label, or the label as a number."""
        return self.names.index(label) if self.names else float(label)

    def decode(self, scores: Any) -> list[str]:
        """Return labels for the scores of rows."""
        if not self.names:
            return [f"{value:.3f}" for value in np.squeeze(scores, -1)]
        return [self.names[index] for index in np.argmax(scores, axis=-1)]


def labels_of(table: Table) -> Labels:
    """Decide from the training rows what is learned."""
    return Labels(() if any("." in label for label in table.labels) else tuple(sorted(set(table.labels))))


def metrics_of(labels: Labels) -> Any:
    """Return accuracy for classes, mean squared error for numbers."""

    def compute(predictions: Any) -> dict[str, float]:
        if labels.names:
            return {"accuracy": float((predictions.predictions.argmax(-1) == predictions.label_ids).mean())}
        return {"mse": float(((np.squeeze(predictions.predictions, -1) - predictions.label_ids) ** 2).mean())}

    return compute


def begin(args: TrainingArguments) -> str | None:
    """Set the logs and the seed; return the checkpoint to continue from, if there is one."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    logger.setLevel(args.get_process_log_level())
    set_seed(args.seed)
    if args.resume_from_checkpoint is not None:
        return args.resume_from_checkpoint
    overwrite = getattr(args, "overwrite_output_dir", False)
    return None if overwrite or not Path(args.output_dir).is_dir() else get_last_checkpoint(args.output_dir)


def main() -> None:
    """Read, train, score, predict: what was asked for."""
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, args = parser.parse_json_file(sys.argv[1])
    else:
        model_args, data_args, args = parser.parse_args_into_dataclasses()
    checkpoint = begin(args)
    train = read_table(data_args.path("train"))
    labels = labels_of(train)
    trainer, samples, labels = build(model_args, data_args, args, labels)
    if args.do_train:
        metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
        trainer.save_model()
        report(trainer, "train", metrics)
        trainer.save_state()
    if args.do_eval:
        report(trainer, "eval", trainer.evaluate())
    if args.do_predict:
        predictions = trainer.predict(samples("test", data_args.max_predict_samples), metric_key_prefix="predict")
        write_predictions(trainer, labels.decode(predictions.predictions), data_args.task_name or "text")


def build(model_args: ModelArguments, data_args: DataArguments, args: TrainingArguments, labels: Labels) -> Any:
    """Load model and tokenizer; return a Trainer, a function from a split to its samples, and the labels in order."""
    source = {"cache_dir": model_args.cache_dir, "revision": model_args.model_revision}
    path = model_args.model_name_or_path
    tokenizer_path, config_path = model_args.tokenizer_name or path, model_args.config_name or path
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path, use_fast=model_args.use_fast_tokenizer, **source)
    config = AutoConfig.from_pretrained(config_path, num_labels=max(1, len(labels.names)), **source)
    labels = in_order_of(config, labels)
    if labels.names:
        config.label2id = {name: index for index, name in enumerate(labels.names)}
        config.id2label = dict(enumerate(labels.names))
    model = AutoModelForSequenceClassification.from_pretrained(
        path, config=config, ignore_mismatched_sizes=model_args.ignore_mismatched_sizes, **source
    )
    padding = "max_length" if data_args.pad_to_max_length else False

    def samples(split: str, count: int | None) -> list[dict[str, Any]]:
        table = read_table(data_args.path(split), labelled=split != "test").first(count)
        return tokenised(table, tokenizer, labels.code, padding=padding, max_length=data_args.max_seq_length)

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=samples("train", data_args.max_train_samples) if args.do_train else None,
        eval_dataset=samples("dev", data_args.max_eval_samples) if args.do_eval else None,
        compute_metrics=metrics_of(labels),
        processing_class=tokenizer,
        data_collator=default_data_collator if padding else DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8),
    )
    return trainer, samples, labels


def in_order_of(config: Any, labels: Labels) -> Labels:
    """Return the labels in the order in which a model was trained on the same ones, if it was."""
    theirs = tuple(str(config.id2label[index]) for index in sorted(config.id2label))
    return Labels(theirs) if sorted(theirs) == sorted(labels.names) else labels


def report(trainer: Trainer, split: str, metrics: dict[str, float]) -> None:
    """Print metrics and keep them in the output folder."""
    trainer.log_metrics(split, metrics)
    trainer.save_metrics(split, metrics)


def write_predictions(trainer: Trainer, labels: list[str], task: str) -> None:
    """Write a line for every row that was predicted, by the main process."""
    if trainer.is_world_process_zero():
        lines = "".join(f"{number}\t{label}\n" for number, label in enumerate(labels))
        target = Path(trainer.args.output_dir) / f"predict_results_{task}.txt"
        target.write_text("index\tprediction\n" + lines, encoding="utf-8")


if __name__ == "__main__":
    main()
