"""Short texts of long ones as run_summarization.py does it: generated ids are scored, and written out as text."""

import numpy as np
from datasets import Dataset
from small_things import tell, text, tokenizer
from transformers import (
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

words = "--output_dir out --do_train --predict_with_generate --generation_max_length 6 --generation_num_beams 2"
words += " --learning_rate 1e-2 --max_steps 6 --logging_steps 1 --eval_strategy steps --eval_steps 3 --save_strategy no"
words += " --use_cpu --report_to none --disable_tqdm true --per_device_train_batch_size 4"
(training_args,) = HfArgumentParser(Seq2SeqTrainingArguments).parse_args_into_dataclasses(words.split())
set_seed(training_args.seed)
reads = tokenizer()
raw = Dataset.from_dict({"document": [text(5, 9) for _ in range(24)]})


def preprocess_function(examples):
    inputs = reads(examples["document"], max_length=8, truncation=True)
    inputs["labels"] = reads([" ".join(each.split()[:2]) for each in examples["document"]])["input_ids"]
    return inputs


data = raw.map(preprocess_function, batched=True, remove_columns=["document"])
model = T5ForConditionalGeneration(
    T5Config(
        vocab_size=len(reads),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
)


def compute_metrics(eval_preds):
    preds, labels = eval_preds
    preds, labels = (np.where(ids != -100, ids, reads.pad_token_id) for ids in (preds, labels))
    texts = [reads.batch_decode(ids, skip_special_tokens=True) for ids in (preds, labels)]
    common = [len({*one.split()} & {*other.split()}) for one, other in zip(*texts, strict=True)]
    return {"common": float(np.mean(common)), "gen_len": float(np.mean([np.count_nonzero(row) for row in preds]))}


trainer = Seq2SeqTrainer(
    model=model,
    args=training_args,
    train_dataset=data.select(range(16)),
    eval_dataset=data.select(range(16, 24)),
    processing_class=reads,
    compute_metrics=compute_metrics,
    data_collator=DataCollatorForSeq2Seq(reads, model=model, label_pad_token_id=-100, pad_to_multiple_of=4),
)
trainer.train()
found = trainer.predict(data.select(range(16, 24)), metric_key_prefix="predict", max_length=5, num_beams=1)
tell(trainer, metrics=found.metrics, predictions=np.asarray(found.predictions).tolist())
