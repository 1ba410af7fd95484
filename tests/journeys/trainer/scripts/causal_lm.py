"""A tiny GPT-2 with NEFTune noise, loss averaged over all target tokens of accumulated batches, and token counts."""

import json
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments
from transformers.models.gpt2 import GPT2Config, GPT2LMHeadModel

dice = torch.Generator().manual_seed(5)


def row(number):
    ids = torch.randint(0, 40, (10,), generator=dice)
    labels = ids.clone()
    labels[: number % 7] = -100  # the prompt is excluded from the loss
    return {"input_ids": ids, "attention_mask": torch.ones(10, dtype=torch.long), "labels": labels}


rows = [row(number) for number in range(28)]
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2))
args = TrainingArguments(
    output_dir="out",
    num_train_epochs=2,
    learning_rate=3e-3,
    lr_scheduler_type="cosine",
    warmup_steps=0.25,
    gradient_accumulation_steps=2,
    per_device_train_batch_size=4,
    neftune_noise_alpha=5.0,
    include_num_input_tokens_seen="all",
    logging_steps=1,
    save_strategy="no",
    use_cpu=True,
    report_to="none",
)
trainer = Trainer(model, args, train_dataset=rows)
trainer.train()
first = model.get_input_embeddings()(torch.tensor([1]))
model.train()
second = model.get_input_embeddings()(torch.tensor([1]))
outcome = {
    "history": trainer.state.log_history,
    "tokens": trainer.state.num_input_tokens_seen,
    "quiet": torch.equal(first, second),
}
Path("outcome.json").write_text(json.dumps(outcome))
