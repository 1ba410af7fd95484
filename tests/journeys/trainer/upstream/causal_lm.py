"""A causal language model as run_clm.py does it: texts in blocks of one length, accumulation, perplexity, a resume."""

import math
from itertools import chain

from datasets import Dataset
from small_things import SIZES, tell, text, tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator, set_seed
from transformers.trainer_utils import get_last_checkpoint

BLOCK = 8
set_seed(42)
reads = tokenizer()
raw = Dataset.from_dict({"text": [text(6, 12) for _ in range(60)]})
tokenized = raw.map(lambda rows: reads(rows["text"]), batched=True, remove_columns=["text"])


def group_texts(examples):
    joined = {name: list(chain(*examples[name])) for name in ("input_ids", "attention_mask")}
    whole = len(joined["input_ids"]) // BLOCK * BLOCK
    result = {name: [all_of_it[i : i + BLOCK] for i in range(0, whole, BLOCK)] for name, all_of_it in joined.items()}
    result["labels"] = [list(row) for row in result["input_ids"]]
    return result


blocks = tokenized.map(group_texts, batched=True, remove_columns=tokenized.column_names)
train, dev = blocks.select(range(40)), blocks.select(range(40, 48))
args = TrainingArguments(
    output_dir="out",
    learning_rate=1e-2,
    num_train_epochs=2,
    gradient_accumulation_steps=2,
    logging_steps=1,
    save_steps=4,
    per_device_train_batch_size=4,
    eval_strategy="epoch",
    include_num_input_tokens_seen="all",
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)


def preprocess_logits_for_metrics(logits, labels):
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)


def compute_metrics(eval_preds):
    preds, labels = eval_preds
    return {"accuracy": float((labels[:, 1:] == preds[:, :-1]).mean())}


def build():
    set_seed(1)
    return Trainer(
        LlamaForCausalLM(
            LlamaConfig(vocab_size=len(reads), bos_token_id=None, eos_token_id=1, pad_token_id=0, **SIZES)
        ),
        args,
        train_dataset=train,
        eval_dataset=dev,
        processing_class=reads,
        data_collator=default_data_collator,
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics,
    )


build().train()
trainer = build()
trainer.train(resume_from_checkpoint=get_last_checkpoint("out").replace("checkpoint-10", "checkpoint-8"))
metrics = trainer.evaluate()
metrics["perplexity"] = math.exp(metrics["eval_loss"])
trainer.save_metrics("eval", metrics)
tell(trainer, metrics=metrics)
