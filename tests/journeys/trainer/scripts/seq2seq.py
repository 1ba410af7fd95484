"""Translate made-up codes with a tiny T5; evaluate and predict by generation."""

import json
from pathlib import Path

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.models.t5 import T5Config, T5ForConditionalGeneration

dice = torch.Generator().manual_seed(3)


def row(number):
    source = torch.randint(3, 30, (5,), generator=dice)
    target = torch.cat([source.flip(0)[:4], torch.tensor([1])])
    if number >= 20 and number % 2:
        target[-2:] = torch.tensor([1, -100])
    return {"input_ids": source, "attention_mask": torch.ones(5, dtype=torch.long), "labels": target}


rows = [row(number) for number in range(20)]
held_out = [row(number) for number in range(20, 26)]
torch.manual_seed(0)
config = T5Config(
    vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0, dropout_rate=0.1
)
args = Seq2SeqTrainingArguments(
    output_dir="out",
    num_train_epochs=2,
    learning_rate=5e-3,
    gradient_accumulation_steps=2,
    per_device_train_batch_size=4,
    predict_with_generate=True,
    generation_max_length=7,
    eval_strategy="epoch",
    logging_steps=1,
    save_strategy="no",
    use_cpu=True,
    report_to="none",
)


def compute_metrics(predictions):
    produced, wanted = predictions
    return {"first": float((produced[:, 1] == wanted[:, 0]).mean()), "width": produced.shape[1]}


trainer = Seq2SeqTrainer(
    model=T5ForConditionalGeneration(config),
    args=args,
    train_dataset=rows,
    eval_dataset=held_out,
    compute_metrics=compute_metrics,
)
trainer.train()
predicted = trainer.predict(held_out, max_length=6, num_beams=2)
outcome = {
    "history": trainer.state.log_history,
    "predictions": predicted.predictions.tolist(),
    "labels": predicted.label_ids.tolist(),
    "metrics": predicted.metrics,
    "shorter": trainer.evaluate(max_length=3)["eval_width"],
}
Path("outcome.json").write_text(json.dumps(outcome))
