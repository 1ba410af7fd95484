"""Tags of words as run_ner.py does it: -100 where no word begins, scores of what is not padding."""

import numpy as np
from small_things import SIZES, WORDS, dice, tell, text, tokenizer
from transformers import (
    BertConfig,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

TAGS = ["O", "B-X", "I-X"]
set_seed(42)
reads = tokenizer()


def row():
    words = text().split()
    ids = reads(words, is_split_into_words=True)["input_ids"]
    tags = [WORDS.index(word) % 3 for word in words]
    tags[dice.randrange(len(tags))] = -100
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": tags}


train, dev = [row() for _ in range(20)], [row() for _ in range(8)]
model = BertForTokenClassification(BertConfig(vocab_size=len(reads), num_labels=len(TAGS), **SIZES))


def compute_metrics(p):
    predictions, labels = p
    predictions, known = np.argmax(predictions, axis=2), labels != -100
    return {"accuracy": float((predictions == labels)[known].mean()), "words": int(known.sum())}


args = TrainingArguments(
    output_dir="out",
    learning_rate=5e-3,
    num_train_epochs=2,
    logging_steps=1,
    eval_strategy="epoch",
    lr_scheduler_type="cosine",
    save_strategy="no",
    per_device_train_batch_size=4,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=dev,
    processing_class=reads,
    data_collator=DataCollatorForTokenClassification(reads),
    compute_metrics=compute_metrics,
)
trainer.train()
predictions, labels, metrics = trainer.predict(dev)
tell(trainer, metrics=metrics, shapes=[predictions.shape, labels.shape], padding=int((labels == -100).sum()))
