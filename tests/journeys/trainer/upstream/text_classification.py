"""Text classification as run_glue.py does it: a command line, padding by batch, accuracy, predictions."""

from dataclasses import dataclass, field

import numpy as np
from datasets import Dataset
from small_things import SIZES, dice, tell, text, tokenizer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class DataTrainingArguments:
    """Which rows, and how long."""

    max_seq_length: int = field(default=16)
    max_train_samples: int | None = field(default=None)


words = "--output_dir out --do_train --do_eval --do_predict --max_seq_length 8 --max_train_samples 20"
words += " --learning_rate 5e-3 --num_train_epochs 2 --logging_steps 1 --eval_strategy epoch --save_strategy epoch"
words += " --load_best_model_at_end --metric_for_best_model accuracy --warmup_steps 2 --weight_decay 0.1 --use_cpu"
words += " --report_to none --disable_tqdm true"
data_args, training_args = HfArgumentParser((DataTrainingArguments, TrainingArguments)).parse_args_into_dataclasses(
    words.split()
)
set_seed(training_args.seed)
reads = tokenizer()
raw = Dataset.from_dict({"sentence": [text() for _ in range(24)], "label": [dice.randrange(3) for _ in range(24)]})


def preprocess_function(examples):
    return reads(examples["sentence"], max_length=data_args.max_seq_length, truncation=True)


data = raw.map(preprocess_function, batched=True)
train = data.select(range(data_args.max_train_samples))
dev = data.select(range(16, 24))
model = BertForSequenceClassification(BertConfig(vocab_size=len(reads), num_labels=3, **SIZES))


def compute_metrics(p: EvalPrediction):
    return {"accuracy": (np.argmax(p.predictions, axis=1) == p.label_ids).astype(np.float32).mean().item()}


trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=train if training_args.do_train else None,
    eval_dataset=dev if training_args.do_eval else None,
    compute_metrics=compute_metrics,
    processing_class=reads,
    data_collator=DataCollatorWithPadding(reads),
)
result = trainer.train()
metrics = {**result.metrics, "train_samples": len(train)}
trainer.save_model()
trainer.log_metrics("train", metrics)
trainer.save_metrics("train", metrics)
trainer.save_state()
scores = trainer.evaluate(eval_dataset=dev)
predictions = trainer.predict(dev.remove_columns("label"), metric_key_prefix="predict").predictions
tell(trainer, metrics=metrics, scores=scores, predictions=predictions.argmax(1).tolist())
