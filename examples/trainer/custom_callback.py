"""Two callbacks of one's own: one keeps every number as a JSON line, one stops when the time is over.

    python examples/trainer/custom_callback.py --train_file train.tsv --output_dir out/timed --minutes 10

A line of the file is `text TAB label`.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_files import read_table, small_bert, tokenised
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from xdpx import (
    DataCollatorWithPadding,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)


@dataclass
class RowArguments:
    """Which rows, which model, and for how long."""

    train_file: str = field(metadata={"help": "Rows to train on: text TAB label."})
    model_name_or_path: str | None = field(default=None, metadata={"help": "Default: the small BERT of a package."})
    max_seq_length: int = field(default=64, metadata={"help": "Longest sample, in tokens."})
    minutes: float = field(default=10.0, metadata={"help": "Training stops, resumable, after so many minutes."})


class Diary(TrainerCallback):
    """Keeps what is logged, a JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any) -> None:
        """Add a line; only the main process writes."""
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, **logs}) + "\n")


class Alarm(TrainerCallback):
    """Saves and stops when the time is over."""

    def __init__(self, minutes: float) -> None:
        self.seconds = minutes * 60
        self.began = 0.0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock."""
        self.began = time.monotonic()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> TrainerControl:
        """Ask for a checkpoint and for the end."""
        if time.monotonic() - self.began > self.seconds:
            control.should_save = True
            control.should_training_stop = True
        return control


def main() -> None:
    """Train for a while, and say how far it came."""
    rows, args = HfArgumentParser((RowArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(args.seed)
    table = read_table(rows.train_file)
    names = sorted(set(table.labels))
    path = rows.model_name_or_path or small_bert()
    tokenizer = AutoTokenizer.from_pretrained(path)
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(path, num_labels=len(names)),
        args=args,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=tokenised(table, tokenizer, names.index, max_length=rows.max_seq_length),
        callbacks=[Diary(Path(args.output_dir) / "diary.jsonl"), Alarm(rows.minutes)],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    print(f"stopped at step {trainer.state.global_step} of {trainer.state.max_steps}")


if __name__ == "__main__":
    main()
