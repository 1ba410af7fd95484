"""The right ending of four as run_swag.py does it: each row is four texts."""

import numpy as np
from small_things import SIZES, dice, tell, text, tokenizer
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    DataCollatorForMultipleChoice,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
reads = tokenizer()


def row():
    four = reads([text(2, 4)] * 4, [text(2, 4) for _ in range(4)], truncation=True)
    return {**four, "label": dice.randrange(4)}


def compute_metrics(eval_predictions):
    predictions, label_ids = eval_predictions
    return {"accuracy": (np.argmax(predictions, axis=1) == label_ids).astype(np.float32).mean().item()}


train, dev = [row() for _ in range(18)], [row() for _ in range(8)]
args = TrainingArguments(
    output_dir="out",
    learning_rate=5e-3,
    max_steps=6,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=3,
    save_steps=3,
    per_device_train_batch_size=4,
    optim="adafactor",
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    BertForMultipleChoice(BertConfig(vocab_size=len(reads), **SIZES)),
    args,
    train_dataset=train,
    eval_dataset=dev,
    processing_class=reads,
    data_collator=DataCollatorForMultipleChoice(tokenizer=reads),
    compute_metrics=compute_metrics,
)
trainer.train()
trainer.train(resume_from_checkpoint="out/checkpoint-3")
tell(trainer, metrics=trainer.evaluate())
